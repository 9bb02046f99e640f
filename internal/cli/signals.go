package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// forced is the exit code of a process that a second signal ends: the shells' own for SIGINT.
const forced = 130

// oneWish is how long further signals count as the first one. timeout(1) signals its child and then
// the group that the child is in, and a terminal's Ctrl-C reaches us as well as a wrapper that
// passes it on. Measured: `timeout 3 outbox relay` was forced 2 times of 18.
const oneWish = 100 * time.Millisecond

// interruptible returns a context that the first SIGINT or SIGTERM ends, or the SIGHUP of a
// terminal that is closed. The second ends the process, for whoever does not want to wait for a
// batch to finish. release must be called.
func interruptible(ctx context.Context, stderr io.Writer) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		var first time.Time
		for {
			select {
			case <-done:
				return
			case <-signals:
			}
			switch {
			case first.IsZero():
				first = time.Now()
				cancel()
			case time.Since(first) >= oneWish:
				fmt.Fprintln(stderr, "outbox: forced to stop; what was under way may be delivered again")
				os.Exit(forced)
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		watching.Wait()
		cancel()
	}
}
