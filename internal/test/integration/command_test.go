package integration

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/cli"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/sink"
)

// command is the outbox command within this process, with its environment and nothing of ours.
type command struct {
	t       *testing.T
	environ []string
	drivers []sink.Driver // beside those that it knows
	log     said          // of what runs in the background
}

func (c *command) main(ctx context.Context, stdin string, out, errs io.Writer, args ...string) int {
	return cli.Main(ctx, args, cli.Streams{In: strings.NewReader(stdin), Out: out, Err: errs}, c.environ,
		append(app.Sinks(), c.drivers...))
}

// run runs it to its end, which must be with that exit code, and returns what it printed and said.
func (c *command) run(want int, stdin string, args ...string) string {
	c.t.Helper()
	out, errs := c.both(want, stdin, args...)
	return out + errs
}

// prints is what it prints, with exit code 0.
func (c *command) prints(stdin string, args ...string) string {
	c.t.Helper()
	out, _ := c.both(0, stdin, args...)
	return out
}

func (c *command) both(want int, stdin string, args ...string) (printed, saying string) {
	c.t.Helper()
	var out, errs said
	if code := c.main(c.t.Context(), stdin, &out, &errs, args...); code != want {
		c.t.Fatalf("outbox %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, &out, &errs)
	}
	return out.String(), errs.String()
}

// start runs it until stop is called, or the test ends. It must end well.
func (c *command) start(args ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	ended := make(chan int, 1)
	go func() { ended <- c.main(ctx, "", io.Discard, &c.log, args...) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if code := <-ended; code != 0 {
			c.t.Errorf("outbox %s: exit code %d:\n%s", strings.Join(args, " "), code, &c.log)
		}
	})
	c.t.Cleanup(stop)
	return stop
}

// until waits for a condition.
func (c *command) until(is func() bool) {
	c.t.Helper()
	until(c.t, &c.log, is)
}

// said collects what a command writes.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// until waits for a condition; log is shown if it does not come true.
func until(t *testing.T, log interface{ String() string }, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > tier.Patience() {
			t.Fatalf("it does not come true:\n%s", log)
		}
	}
}
