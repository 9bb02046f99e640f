package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	gosse "github.com/tmaxmax/go-sse"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/server/crawl"
)

const (
	// quiet is how long a stream may say nothing, not even a comment (every 15 s unless the gateway
	// was told otherwise), until it is taken for dead.
	quiet = 50 * time.Second
	// maxEvent has room for the largest payload, which a database writes with more spaces than it
	// was given, and its envelope.
	maxEvent = 4 * outbox.DefaultMaxPayload

	followPause, followPauseMax = 250 * time.Millisecond, 5 * time.Second
)

// following is a run that is being followed. go-sse's own client would come back by itself as well.
// But it takes a gateway that is restarting (503) for one that refuses for ever, so only its reader
// is used.
type following struct {
	*application
	gateway *api
	form    string
	run     uuid.UUID
	last    int64   // number of the last event printed
	ended   bool    // it was the run's last
	failure *string // why the run failed
	away    bool    // it was said that no gateway answers
}

// follow prints what happens in a run after an event until it has ended.
func (a *application) follow(ctx context.Context, gateway *api, form string, run uuid.UUID, after int64) error {
	f := following{application: a, gateway: gateway, form: form, run: run, last: after}
	pause := followPause
	for {
		before := f.last
		err := f.connect(ctx)
		var refusal *apiError
		switch {
		case f.ended && f.failure != nil:
			return fmt.Errorf("run %s failed: %s", run, oneLine(*f.failure))
		case f.ended:
			return nil
		case ctx.Err() != nil:
			fmt.Fprintf(a.Err, "stopped; go on with: outbox runs follow %s --after %d\n", run, f.last)
			return nil
		case errors.As(err, &refusal) && !refusal.passing(), errors.Is(err, errPrint):
			return err
		case f.last > before || err == nil:
			pause = followPause
		case !f.away:
			fmt.Fprintf(a.Err, "%v: trying again\n", err)
			f.away = true
		}
		backoff.Wait(ctx, pause/2+rand.N(pause)) // not all clients of a gateway at once
		pause = min(2*pause, followPauseMax)
	}
}

// errPrint marks an error of stdout.
var errPrint = errors.New("print event")

// connect opens the stream and prints what comes until it breaks.
func (f *following) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(quiet, func() { cancel(fmt.Errorf("nothing came for %s", quiet)) })
	defer alive.Stop()
	header := http.Header{"Accept": {"text/event-stream"}}
	if f.last > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(f.last, 10))
	}
	resp, err := f.gateway.send(ctx, http.MethodGet, runPath(f.run, "/stream"), header, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if f.away {
		fmt.Fprintln(f.Err, "connected again")
		f.away = false
	}
	if resp.StatusCode == http.StatusNoContent {
		return f.conclude(ctx)
	}
	stream := readerFunc(func(b []byte) (int, error) {
		n, err := resp.Body.Read(b)
		alive.Reset(quiet)
		return n, err
	})
	for event, err := range gosse.Read(stream, &gosse.ReadConfig{MaxEventSize: maxEvent}) {
		if err != nil {
			return fmt.Errorf("read stream of run %s: %w", f.run, cmp.Or(context.Cause(ctx), err))
		}
		if err := f.print(event); err != nil {
			return err
		}
		if f.ended {
			return nil
		}
	}
	return nil
}

// conclude finds out how a run ended whose events have all been printed.
func (f *following) conclude(ctx context.Context) error {
	var run crawl.Run
	if _, err := f.gateway.ask(ctx, http.MethodGet, runPath(f.run, ""), nil, nil, &run); err != nil {
		return err
	}
	if f.ended = true; run.Status == crawl.Failed {
		f.failure = &run.Error
	}
	return nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// print prints an event, unless it is none, cut short, or known.
func (f *following) print(event gosse.Event) error {
	seq, err := strconv.ParseInt(event.LastEventID, 10, 64)
	if event.Data == "" || err != nil || seq <= f.last {
		return nil
	}
	var e struct {
		Type string          `json:"type"`
		Time time.Time       `json:"time"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal([]byte(event.Data), &e); err != nil {
		// The connection was cut within it; the next one brings it again.
		return fmt.Errorf("read event %d of run %s: %w", seq, f.run, err)
	}
	if f.form == "json" {
		err = printLine(f.Out, json.RawMessage(event.Data))
	} else if _, err = fmt.Fprintln(f.Out,
		eventLine(crawl.Event{Seq: seq, Type: e.Type, CreatedAt: e.Time, Payload: e.Data})); err != nil {
		err = fmt.Errorf("print result: %w", err)
	}
	if err != nil {
		return fmt.Errorf("%w %d: %w", errPrint, seq, err)
	}
	f.last, f.ended = seq, crawl.Terminal(e.Type)
	if e.Type == crawl.RunFailed {
		var why struct{ Error string }
		_ = json.Unmarshal(e.Data, &why) // an outside crawler may have put anything else there
		f.failure = &why.Error
	}
	return nil
}
