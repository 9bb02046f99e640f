package relay

import (
	"context"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/late"
)

// slowness is how long a batch of the sink may take by its own account.
func slowness(s outbox.Sink) time.Duration {
	if asked := outbox.AbilitiesOf(s).Timeout; asked != nil {
		return asked()
	}
	return 0
}

// answerTime is how long a batch with routes waits for a sink.
func answerTime(s outbox.Sink, timeout time.Duration) time.Duration {
	if outbox.AbilitiesOf(s).TakesCopies {
		return 10 * timeout
	}
	return timeout
}

// publishTimeout is how long a publish of the table may take.
func (r *tableRelay) publishTimeout() time.Duration {
	return max(r.cfg.PublishTimeout, slowness(r.sink))
}

// publishing returns the context of a publish. It ends at the latest when another relay may take the lanes over.
func (w *worker) publishing(hardStop context.Context, lanes []outbox.Lane, until time.Time) (context.Context, *call) {
	limit := w.publishTimeout()
	deadline := time.Now().Add(limit)
	c := &call{}
	c.lanes.Store(&lanes)
	if limit > w.cfg.PublishTimeout {
		ctx := w.keeper.hold(hardStop, c, until, deadline)
		return ctx, c
	}
	if until.Before(deadline) {
		deadline = until
	}
	ctx, end := context.WithDeadline(hardStop, deadline)
	c.end = end
	return ctx, c
}

// patient tells a Slow sink how long to wait for one of its receivers, unless too much is under way.
func (w *worker) patient(ctx context.Context) context.Context {
	if slowness(w.sink) == 0 || len(w.late.waiting) >= lateRecords {
		return ctx
	}
	return late.With(ctx, latePatience)
}

// holdCheck is how often a publish that may outlast the lease looks whether the lanes are still held.
const holdCheck = 500 * time.Millisecond

// hold returns a context that ends at the deadline, or when the lease of the call's lanes was not renewed. If the relay
// is to stop, the context ends early enough for the settle.
func (k *leaseKeeper) hold(ctx context.Context, c *call, until, deadline time.Time) context.Context {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			if until = k.extended(*c.lanes.Load(), until); over(until) || k.drained() {
				cancel()
				return
			}
			timer := time.NewTimer(min(time.Until(until), holdCheck))
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	})
	c.end = func() { cancel(); watching.Wait() }
	return ctx
}

// drained tells whether the part of the time to stop is over that publishing has.
func (k *leaseKeeper) drained() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leaving && time.Since(k.stopped) > k.cfg.drain*2/3
}
