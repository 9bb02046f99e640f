// Package late is about answers that take their time. A relay and a sink with many receivers agree
// that the slowest of them delays nobody: the relay says by the context how long it waits for one
// answer; the sink answers what takes longer with an Answer, and goes on. A sink without an answer
// at all keeps some of its time for asking why.
//
// Guaranteed: nothing; it is a value of a context and an error.
//
// Not guaranteed: that the answer comes. It comes by the end of the context that the sink was
// given, if the sink keeps its word.
package late

import (
	"context"
	"time"
)

type patience struct{}

// With says that the caller waits so long for one answer of a batch, and takes an Answer for it.
// What is under way lives as long as the context.
func With(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patience{}, d)
}

// Patience is what With says. Without it ok is false: the caller waits for all.
func Patience(ctx context.Context) (d time.Duration, ok bool) {
	d, ok = ctx.Value(patience{}).(time.Duration)
	return d, ok
}

// Most returns a context with three quarters of the time that is left. The rest is for finding out
// what became of what has no answer by then.
func Most(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*3/4)
}

// Answer stands for one that is still to come, once, at C: nil for delivered, or an error of a
// class. Who knows nothing of it should see an error of outbox.Postponed.
type Answer struct{ C <-chan error }

func (*Answer) Error() string { return "under way: its answer is still to come" }
