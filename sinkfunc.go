package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// SinkFunc is a Sink for the simple case: a function that publishes one delivery. The context ends
// when the relay's time for the batch is over (relay.Config.PublishTimeout), which is for all calls
// together: none begins in less than twice the time that the longest has taken. What is left comes
// with the next batch. A call that is cut all the same costs no attempt, unless it had nine tenths
// of the time.
//
// Deliveries of a batch are published one after another, in their order. After an error no later
// event of that key is published. The error is classed as a Sink's is: Permanent, RetryAfter,
// Unavailable, or any other, which is tried again. Because gives it a name. A panic is an error
// too, of that delivery alone, and context.DeadlineExceeded has the name HandlerTimeout by itself.
// A function that may have published and returns an error publishes a copy the next time: it should
// refuse copies by Delivery.ID, Destination and Generation where its receiver cannot.
type SinkFunc func(ctx context.Context, d Delivery) error

// Publish implements Sink.
func (publish SinkFunc) Publish(ctx context.Context, batch []Delivery) []Result {
	calls, longest := 0, time.Duration(0)
	deadline, limited := ctx.Deadline()
	first := time.Now()
	one := func(i int) error {
		began := time.Now()
		switch {
		case calls == 0 && ctx.Err() != nil:
			return Unavailable(ctx.Err())
		case ctx.Err() != nil, calls > 0 && limited && deadline.Sub(began) < 2*longest:
			return ErrNotAttempted
		}
		err := publish.call(ctx, &batch[i])
		longest = max(longest, time.Since(began))
		cut := err != nil && ctx.Err() != nil && time.Since(began) < time.Since(first)*9/10
		if calls++; calls > 1 && cut {
			return errors.Join(ErrNotAttempted, err)
		}
		return err
	}
	return InOrder(context.WithoutCancel(ctx), batch, Sending{Messages: 1, // a call ends by itself
		Send: func(i int, done func(Result)) { done(Result{Err: one(i)}) }})
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
