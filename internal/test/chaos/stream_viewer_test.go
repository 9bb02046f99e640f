package chaos

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	gosse "github.com/tmaxmax/go-sse"

	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
)

// viewer follows a run as a browser does: with its cursor it comes back from whatever ended its
// connection, until it is told that there is no more.
type viewer struct {
	addresses []string
	run       uuid.UUID
	view      view
	rng       *rand.Rand

	connections   int // that a gateway answered with a stream
	cuts          int // by the viewer itself
	broken        int // in the middle, by something else
	endedProperly int

	mu   sync.Mutex
	got  []seen
	done bool
	err  error
}

// seen is an event as the viewer got it.
type seen struct {
	seq  int64
	of   string
	data string
}

func (v *viewer) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.got)
}

func (v *viewer) ended() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.done
}

// follow ends with the run, or with a refusal that no waiting cures.
func (v *viewer) follow(ctx context.Context) {
	deadline := time.Now().Add(2 * tier.Patience())
	for turn := v.rng.IntN(len(v.addresses)); ; turn++ {
		status := v.connect(ctx, v.addresses[turn%len(v.addresses)])
		refused := status >= 400 && status != http.StatusServiceUnavailable
		if status == http.StatusNoContent || refused || time.Now().After(deadline) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.done = true; status != http.StatusNoContent {
				v.err = fmt.Errorf("the last answer was status %d after event %d", status, v.last())
			}
			return
		}
		time.Sleep(time.Duration(20+v.rng.IntN(100)) * time.Millisecond)
	}
}

// last is the cursor.
func (v *viewer) last() int64 {
	if len(v.got) == 0 {
		return 0
	}
	return v.got[len(v.got)-1].seq
}

// perRequest has a connection for each request. Go's default keeps one that it dialled for nothing,
// and a server that stops waits 5 s for the request on it.
var perRequest = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// connect reads a stream to its end. The status is 0 if nobody answered.
func (v *viewer) connect(ctx context.Context, address string) (status int) {
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/runs/"+v.run.String()+"/stream",
		nil)
	if err != nil {
		panic(err) // of parts that make a URL
	}
	if last := v.last(); last > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(last, 10))
	}
	resp, err := perRequest.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode
	}
	v.connections++
	var body io.Reader = resp.Body
	if v.view.dripping {
		body = drip{bufio.NewReader(body)}
	}
	left := -1
	if v.view.cutAfter > 0 {
		left = v.rng.IntN(v.view.cutAfter + 1)
	}
	for event, err := range gosse.Read(body, &gosse.ReadConfig{MaxEventSize: 1 << 20}) {
		if err != nil {
			v.broken++
			return resp.StatusCode
		}
		v.take(event)
		if left--; left == 0 {
			v.cuts++
			return resp.StatusCode
		}
	}
	v.endedProperly++
	return resp.StatusCode
}

func (v *viewer) take(event gosse.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seq, err := strconv.ParseInt(event.LastEventID, 10, 64)
	if err != nil {
		v.err = fmt.Errorf("an event without a number: %+v", event)
	}
	v.got = append(v.got, seen{seq, event.Type, event.Data})
}

// drip hands on a byte at a time, and not too many in a second: an event takes it a moment, in
// which connections are cut and gateways killed.
type drip struct{ from *bufio.Reader }

func (d drip) Read(b []byte) (int, error) {
	c, err := d.from.ReadByte()
	if err != nil {
		return 0, err
	}
	if c == '\n' {
		time.Sleep(2 * time.Millisecond)
	}
	b[0] = c
	return 1, nil
}

// verdict tells whether the viewer's connections ended as they should.
func (v *viewer) verdict() error {
	switch {
	case v.view.stay && (v.connections != 1 || v.broken > 0):
		return fmt.Errorf("connected %d times, %d broke: nothing should have disconnected it", v.connections, v.broken)
	case v.view.politely && v.broken > 0:
		return fmt.Errorf("%d of %d connections ended in the middle of something", v.broken, v.connections)
	}
	return v.err
}

// comparison of what a viewer has with the log.
type comparison struct {
	lost, repeated, disordered int
	err                        error // the first difference, of whatever kind
}

func (v *viewer) compare(want []logged) (c comparison) {
	note := func(counter *int, format string, args ...any) {
		*counter++
		c.err = cmp.Or(c.err, fmt.Errorf(format, args...))
	}
	have, last := map[int64]seen{}, int64(0)
	for _, got := range v.got {
		switch _, known := have[got.seq]; {
		case known:
			note(&c.repeated, "event %d came again after %d", got.seq, last)
		case got.seq <= last:
			note(&c.disordered, "event %d came after %d", got.seq, last)
		}
		have[got.seq], last = got, got.seq
	}
	for i, row := range want {
		got, ok := have[row.seq]
		if !ok {
			note(&c.lost, "event %d of the log did not come", row.seq)
			continue
		}
		if err := same(row, got); err != nil || row.seq != int64(i+1) || crawl.Terminal(row.of) != (i == len(want)-1) {
			c.err = errors.Join(c.err, err, fmt.Errorf("place %d of the log: event %d, %s", i+1, row.seq, row.of))
		}
		delete(have, row.seq)
	}
	for seq := range have {
		c.err = cmp.Or(c.err, fmt.Errorf("event %d is not in the log", seq))
	}
	return c
}

// same tells whether a viewer got what the log has. Both payloads are jsonb as the server writes
// it.
func same(want logged, got seen) error {
	var e struct {
		ID       uuid.UUID       `json:"id"`
		Type     string          `json:"type"`
		Sequence string          `json:"sequence"`
		Data     json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal([]byte(got.data), &e); err != nil {
		return fmt.Errorf("event %d: %w", got.seq, err)
	}
	if e.ID != want.id || e.Type != want.of || got.of != want.of || e.Sequence != fmt.Sprintf("%019d", want.seq) ||
		string(e.Data) != want.payload {
		return fmt.Errorf("event %d is %s %s, the log has %+v", got.seq, got.of, got.data, want)
	}
	return nil
}
