// Package late is how a relay and a sink with many receivers agree that the slowest of them delays nobody. The relay
// says by the context how long it waits for one answer; the sink answers what takes longer with an Answer, and goes on.
//
// Guaranteed: nothing; it is a value of a context and an error.
//
// Not guaranteed: that the answer comes. It comes by the end of the context that the sink was given, if the sink keeps
// its word.
package late

import (
	"context"
	"time"
)

type patience struct{}

// With says that the caller waits so long for one answer of a batch, and takes an Answer for it. What is under way
// lives as long as the context.
func With(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patience{}, d)
}

// Patience is what With says. Without it ok is false: the caller waits for all.
func Patience(ctx context.Context) (d time.Duration, ok bool) {
	d, ok = ctx.Value(patience{}).(time.Duration)
	return d, ok
}

// Answer stands for one that is still to come, once, at C: nil for delivered, or an error of a class. Who knows nothing
// of it should see an error of outbox.Postponed.
type Answer struct{ C <-chan error }

func (*Answer) Error() string { return "under way: its answer is still to come" }
