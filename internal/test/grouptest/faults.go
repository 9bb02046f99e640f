package grouptest

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/inbox/group"
)

// log is what a group has logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// line returns the first line that contains all of the texts.
func (l *log) line(texts ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return line
		}
	}
	return ""
}

// logged has a group log into a log of the test, which must not show a mistake in a format.
func logged(t *testing.T, cfg *group.Config) *log {
	t.Helper()
	l := new(log)
	cfg.Relay.Logger = slog.New(slog.NewTextHandler(l, nil))
	t.Cleanup(func() {
		if line := l.line("%!"); line != "" {
			t.Errorf("the log has %s", line)
		}
	})
	return l
}

// Handlers that never return hold up their keys, and nothing else: there are more of them than
// Workers. Each is called once, which is one attempt. Once they return their events are handled
// again, and have one effect.
func hung(t *testing.T, h Harness) {
	cfg := h.quick("billing")
	cfg.Workers, cfg.Timeout, cfg.MaxAttempts = 2, time.Minute, 20
	const short = 100 * time.Millisecond
	cfg.Types = map[string]group.TypeConfig{"order.slow": {Timeout: short},
		"order.last": {Timeout: short, MaxAttempts: 1}, "order.placed": {MaxAttempts: 1}}
	log := logged(t, &cfg)
	g := h.group(t, cfg)
	release := make(chan struct{})
	var calls sync.Map // by key: how many handlers of it run, of how many calls
	type count struct{ running, all atomic.Int32 }
	handle := func(ctx context.Context, tx *sql.Tx, m group.Message[order]) error {
		of, _ := calls.LoadOrStore(m.AggregateID, new(count))
		c := of.(*count)
		defer c.running.Add(-1)
		if c.running.Add(1) > 1 {
			t.Errorf("key %s is handled twice at the same time", m.AggregateID)
		}
		c.all.Add(1)
		err := record(ctx, tx, m)
		if m.Attempt == 1 && m.Topic != "order.placed" {
			<-release
		}
		return err
	}
	for _, eventType := range []string{"order.placed", "order.slow", "order.last"} {
		group.Handle(g, eventType, handle)
	}
	slow := []string{"a", "b", "c", "last"}
	for _, key := range slow[:3] {
		h.write(t, "order.slow", key, 0)
		h.write(t, "order.placed", key, 1)
	}
	h.write(t, "order.last", "last", 0)
	stop := run(t, g)
	for _, key := range slow {
		until(t, "key "+key+" to hang", func() bool {
			return log.line("handler does not return", "group=billing", "key="+key) != ""
		})
	}
	h.write(t, "order.placed", "quick", upTo(20)...)
	until(t, "the other key", func() bool { return h.count(t, "effects WHERE key = 'quick'") == 20 })
	if h.Layout.KeepsState() { // an event of a log becomes a letter after a second call at the earliest
		until(t, "a letter", func() bool { return h.count(t, "job_dlq") == 1 })
		if got := h.Value(t, "SELECT attempts FROM job_dlq"); got != "1" {
			t.Errorf("the letter has %s attempts of a handler that was called once", got)
		}
	}
	time.Sleep(200 * time.Millisecond) // longer than a retry takes
	for _, key := range slow {
		of, _ := calls.Load(key)
		if n := of.(*count).all.Load(); n != 1 {
			t.Errorf("key %s: %d calls while its handler hangs", key, n)
		}
	}
	if n := h.count(t, "effects WHERE key <> 'quick'"); n != 0 {
		t.Errorf("%d effects of handlers that hang, or behind them", n)
	}
	close(release)
	for _, key := range slow[:3] {
		until(t, "key "+key, func() bool { return h.count(t, "effects WHERE key = '"+key+"'") == 2 })
	}
	until(t, "the last key", func() bool { return h.count(t, "effects WHERE key = 'last'")+h.count(t, "job_dlq") > 0 })
	stop()
	if n := h.count(t, "effects WHERE key = 'last'") + h.count(t, "job_dlq"); n != 1 {
		t.Errorf("%d effects and letters of the event of one attempt, want 1", n)
	}
}

// A process stops although a handler never returns, and says so.
func hungAtTheEnd(t *testing.T, h Harness) {
	cfg := h.quick("billing")
	cfg.Timeout, cfg.Relay.DrainTimeout = 100*time.Millisecond, 3*time.Second
	g := h.group(t, cfg)
	called, release := make(chan struct{}, 1), make(chan struct{})
	defer close(release)
	group.Handle(g, "order.slow", func(context.Context, *sql.Tx, group.Message[order]) error {
		called <- struct{}{}
		<-release
		return nil
	})
	h.write(t, "order.slow", "a", 0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	<-called
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "1 handlers do not return") {
		t.Errorf("got error %v, want the handler that does not return", err)
	}
}

// A pool with fewer connections than the group has use for is one line of the log.
func poolSize(t *testing.T, h Harness) {
	for connections, want := range map[int]bool{0: false, 4: true, 8: true, 9: false} {
		h.Tx.Connections = connections
		cfg := h.quick("billing")
		log := logged(t, &cfg)
		g := h.group(t, cfg)
		group.Handle(g, "order.placed", record)
		run(t, g)()
		line := log.line("smaller than Workers + 1", fmt.Sprintf("connections=%d workers=8 needed=9", connections))
		if got := line != ""; got != want {
			t.Errorf("%d connections: warned %t, want %t", connections, got, want)
		}
	}
}

// panicsFor is named by the stacks of its panics.
func panicsFor(m map[string]int) { m["a"] = 1 }

// A failure is logged with its group, event and key. A panic has its stack there and in its letter.
func failuresTold(t *testing.T, h Harness) {
	cfg := h.quick("billing")
	cfg.MaxAttempts = 2
	log := logged(t, &cfg)
	g := h.group(t, cfg)
	group.Handle(g, "order.panics", func(context.Context, *sql.Tx, group.Message[order]) error {
		panicsFor(nil)
		return nil
	})
	e, err := outbox.NewEvent("order.panics", order{1})
	if err != nil {
		t.Fatal(err)
	}
	e.AggregateType, e.AggregateID = "Order", "order-7"
	h.commit(t, e)
	run(t, g)
	until(t, "a letter", func() bool { return h.count(t, "job_dlq") == 1 })
	stack := []string{"panic: assignment to entry in nil map", "grouptest.panicsFor (faults.go:",
		"grouptest.failuresTold.func"}
	letter := h.Value(t, "SELECT error_history FROM job_dlq")
	for _, text := range stack {
		if !strings.Contains(letter, text) {
			t.Errorf("the letter lacks %q: %s", text, letter)
		}
	}
	if strings.Contains(letter, "group.recovered") || len(letter) > 6000 {
		t.Errorf("the letter has more than the handler's part of the stack: %s", letter)
	}
	texts := append(stack, "group=billing", "event="+e.ID.String(), "key=order-7")
	if h.Layout.KeepsState() { // of a log the first failure is not logged, but copied
		until(t, "a line of the failure", func() bool { return log.line(append(texts, "delivery failed")...) != "" })
	}
	until(t, "a line of the letter", func() bool { return log.line(append(texts, "dead letter")...) != "" })
}

// foreignErrors are what handlers get from other systems than the group's database.
func foreignErrors() map[string]error {
	return map[string]error{
		"an error of its own":       errors.New("no such order"),
		"a context canceled":        context.Canceled,
		"a context's deadline":      context.DeadlineExceeded,
		"no rows":                   sql.ErrNoRows,
		"a connection that is done": sql.ErrConnDone,
		"a transaction that ended":  sql.ErrTxDone,
		"a connection that is bad":  driver.ErrBadConn,
		"the end of a stream":       io.ErrUnexpectedEOF,
		"a closed connection":       net.ErrClosed,
		"a timeout":                 os.ErrDeadlineExceeded,
		"a refused connection":      &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		"an unknown host":           &net.DNSError{Err: "no such host", IsTemporary: true, IsTimeout: true},
		"another inbox is busy":     inbox.ErrBusy,
	}
}

// An error of another system is an attempt, whatever its driver calls it, unless the handler has
// classed it itself.
func foreign(t *testing.T, h Harness) {
	all := foreignErrors()
	for name, err := range h.Foreign {
		all[name] = err
	}
	for name, err := range all {
		all[name+", wrapped"] = fmt.Errorf("ask the bank: %w", err)
	}
	cfg := h.quick("billing")
	cfg.MaxAttempts = 1
	g := h.group(t, cfg)
	var calls atomic.Int32
	group.Handle(g, "order.placed", func(_ context.Context, _ *sql.Tx, m group.Message[order]) error {
		calls.Add(1)
		return all[m.AggregateID]
	})
	var away atomic.Int32
	group.Handle(g, "order.away", func(_ context.Context, _ *sql.Tx, m group.Message[order]) error {
		if away.Add(1); m.Attempt > 1 {
			t.Errorf("attempt %d of what is unavailable", m.Attempt)
		}
		return outbox.Unavailable(errors.New("the bank is closed"))
	})
	for name := range all {
		h.write(t, "order.placed", name, 1)
	}
	run(t, g)
	until(t, "all letters", func() bool { return h.count(t, "job_dlq") == len(all) })
	if most := map[bool]int{true: len(all), false: 2 * len(all)}[h.Layout.KeepsState()]; int(calls.Load()) > most {
		t.Errorf("%d calls for %d letters of one attempt each", calls.Load(), len(all))
	}
	h.write(t, "order.away", "away", 1)
	until(t, "a second call", func() bool { return away.Load() >= 2 })
	if n := h.count(t, "job_dlq"); n != len(all) {
		t.Errorf("%d letters, want %d", n, len(all))
	}
}
