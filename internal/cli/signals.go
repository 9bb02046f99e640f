package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// forced is the exit code of a process that a second signal ends: the shells' own for SIGINT.
const forced = 130

// interruptible returns a context that the first SIGINT or SIGTERM ends. The second ends the process, for whoever does not want to wait for
// a batch to finish. release must be called.
func interruptible(ctx context.Context, stderr io.Writer) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for range 2 {
			select {
			case <-done:
				return
			case <-signals:
			}
			if ctx.Err() != nil {
				fmt.Fprintln(stderr, "outbox: forced to stop; what was under way may be delivered again")
				os.Exit(forced)
			}
			cancel()
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		watching.Wait()
		cancel()
	}
}
