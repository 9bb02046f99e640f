package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// SinkFunc is a Sink for the simple case: a function that publishes one delivery. The context ends when the relay's
// time for the batch is over (relay.Config.PublishTimeout), which is for all calls together: none begins in less than
// twice the time that the longest has taken. What is left comes with the next batch. A call that is cut all the same
// costs no attempt, unless it had nine tenths of the time.
//
// Deliveries of a batch are published one after another, in their order. After an error no later event of that key is
// published. The error is classed as a Sink's is: Permanent, RetryAfter, Unavailable, or any other, which is tried
// again. Because gives it a name. A panic is an error too, of that delivery alone, and context.DeadlineExceeded has the
// name HandlerTimeout by itself. A function that may have published and returns an error publishes a copy the next
// time: it should refuse copies by Delivery.ID, Destination and Generation where its receiver cannot.
type SinkFunc func(ctx context.Context, d Delivery) error

// Publish implements Sink.
func (publish SinkFunc) Publish(ctx context.Context, batch []Delivery) []Result {
	results := make([]Result, len(batch))
	failed := HeldKeys{}
	calls, longest := 0, time.Duration(0)
	deadline, limited := ctx.Deadline()
	first := time.Now()
	for i := range batch {
		d := &batch[i]
		began := time.Now()
		switch {
		case calls == 0 && ctx.Err() != nil:
			results[i].Err = Unavailable(ctx.Err())
		case failed.Behind(d.Record), ctx.Err() != nil, calls > 0 && limited && deadline.Sub(began) < 2*longest:
			results[i].Err = ErrNotAttempted
		default:
			results[i].Err = publish.call(ctx, d)
			longest = max(longest, time.Since(began))
			cut := results[i].Err != nil && ctx.Err() != nil && time.Since(began) < time.Since(first)*9/10
			if calls++; calls > 1 && cut {
				results[i].Err = errors.Join(ErrNotAttempted, results[i].Err)
			}
		}
		if results[i].Err != nil {
			failed.Hold(d.Record)
		}
	}
	return results
}

// call makes one call, whose panic nobody else pays for.
func (publish SinkFunc) call(ctx context.Context, d *Delivery) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
		if named := (*reasonError)(nil); errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &named) {
			err = Because(ReasonHandlerTimeout, err)
		}
	}()
	return publish(ctx, *d)
}
