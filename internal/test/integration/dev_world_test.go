package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	gosse "github.com/tmaxmax/go-sse"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// developing is an `outbox dev` with one choice of its parts, and what was observed of it.
type developing struct {
	t        *testing.T
	args     []string // of outbox dev
	database string   // for --database
	dir      string   // where it and the commands run
	url      string   // of its API

	cmd    *exec.Cmd
	out    string // the file it prints to
	exited chan struct{}
	err    error // how it ended; to be read after exited

	observed []string
	names    map[string]string // of ids, in the order in which they were met
}

// start starts it and waits until it has printed what to try.
func (d *developing) start() {
	d.t.Helper()
	path, err := binary()
	noError(d.t, err)
	d.out = filepath.Join(d.t.TempDir(), "out")
	out, err := os.Create(d.out)
	noError(d.t, err)
	d.cmd = exec.Command(path, append([]string{"dev", "--http", "127.0.0.1:0"}, d.args...)...)
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = d.dir, out, out
	noError(d.t, errors.Join(d.cmd.Start(), out.Close()))
	exited := make(chan struct{})
	d.exited = exited
	go func() { // ends with the process, for which the cleanup waits
		d.err = d.cmd.Wait()
		close(exited)
	}()
	process, name := d.cmd.Process, d.out
	d.t.Cleanup(func() {
		_ = process.Kill() // fails if it has ended, as it should have
		<-exited
		if text, _ := os.ReadFile(name); d.t.Failed() {
			d.t.Logf("outbox dev said:\n%s", text)
		}
	})
	eventually(d.t, "outbox dev has printed what to try", func() bool {
		select {
		case <-d.exited:
			d.t.Fatalf("outbox dev ended: %v", d.err)
		default:
		}
		return strings.Contains(d.said(), "Ctrl-C stops it.")
	})
	d.url = regexp.MustCompile(`http://[^/]+`).FindString(d.said())
}

func (d *developing) said() string {
	d.t.Helper()
	text, err := os.ReadFile(d.out)
	noError(d.t, err)
	return string(text)
}

// interrupt is Ctrl-C. It returns the last line that was printed.
func (d *developing) interrupt() string {
	d.t.Helper()
	noError(d.t, d.cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-d.exited:
	case <-time.After(tier.Patience()):
		d.t.Fatal("outbox dev did not end after Ctrl-C")
	}
	if d.err != nil {
		d.t.Errorf("outbox dev ended with %v, want exit code 0", d.err)
	}
	lines := strings.Split(strings.TrimSpace(d.said()), "\n")
	return lines[len(lines)-1]
}

// command runs another command on the same database, as one does in a second terminal, and returns
// what it printed.
func (d *developing) command(stdin string, args ...string) string {
	d.t.Helper()
	path, err := binary()
	noError(d.t, err)
	ctx, cancel := context.WithTimeout(d.t.Context(), tier.Patience())
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(args, "--database", d.database)...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = d.dir, strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		d.t.Fatalf("outbox %s: %v\n%s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

// call makes a request to the API.
func (d *developing) call(method, path, body string) (status int, answer string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	noError(d.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	noError(d.t, err)
	defer func() { _ = resp.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, text.String()
}

// listening is an open stream.
type listening struct {
	t    *testing.T
	next chan gosse.Event // closed at the end of the stream
	end  func()
}

// listen opens a stream and returns when it has been answered.
func (d *developing) listen(path string) *listening {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	noError(d.t, err)
	l := &listening{t: d.t, next: make(chan gosse.Event)}
	answered := make(chan error, 1)
	go func() { // ends with ctx at the latest; end waits for it
		defer close(l.next)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answered <- err
			return
		}
		defer func() { _ = resp.Body.Close() }()
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
			answered <- fmt.Errorf("status %d, %s", resp.StatusCode, kind)
			return
		}
		answered <- nil
		for event, err := range gosse.Read(resp.Body, nil) {
			if err != nil {
				return
			}
			select {
			case l.next <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	l.end = func() {
		cancel()
		for range l.next { // until it is closed
		}
	}
	d.t.Cleanup(l.end)
	if err := <-answered; err != nil {
		d.t.Fatalf("GET %s: %v", path, err)
	}
	return l
}

// event waits for the next event that has data; the first of a stream of topics has none.
func (l *listening) event() gosse.Event {
	l.t.Helper()
	limit := time.After(tier.Patience())
	for {
		select {
		case e, open := <-l.next:
			if !open {
				l.t.Fatal("the stream has ended")
			}
			if e.Data != "" {
				return e
			}
		case <-limit:
			l.t.Fatal("no event came")
		}
	}
}

// over waits for the stream to end, and fails if an event comes first.
func (l *listening) over() {
	l.t.Helper()
	select {
	case e, open := <-l.next:
		if open {
			l.t.Errorf("the stream goes on with %+v", e)
		}
	case <-time.After(tier.Patience()):
		l.t.Error("the stream did not end")
	}
}

var (
	idPattern   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	timePattern = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
)

// observe notes what was seen, a text or what can be made JSON, in words that do not depend on the
// way: times have none, ids are numbered, so that it stays visible which are the same. JSON is
// compared by its value: PostgreSQL's jsonb has its own spelling.
func (d *developing) observe(what string, seen any) {
	d.t.Helper()
	text, ok := seen.(string)
	if !ok {
		made, err := json.Marshal(seen)
		noError(d.t, err)
		text = string(made)
	}
	var value any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) == nil && !decoder.More() {
		made, err := json.Marshal(value)
		noError(d.t, err)
		text = string(made)
	}
	text = strings.NewReplacer(d.url, "URL", "sqlite:"+filepath.Join(d.dir, "outbox.db"), "DATABASE", d.database,
		"DATABASE").Replace(text)
	text = timePattern.ReplaceAllString(text, "TIME")
	text = idPattern.ReplaceAllStringFunc(text, func(id string) string {
		if _, known := d.names[id]; !known {
			d.names[id] = fmt.Sprint("ID", len(d.names)+1)
		}
		return d.names[id]
	})
	d.observed = append(d.observed, what+": "+text)
}
