package sink

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/outboxrelay/outbox"
)

// Limits bound what a sink is given. Zero is no limit.
type Limits struct {
	Rate        float64 // deliveries a second, in bursts of at most a tenth of a second's worth
	Concurrency int     // calls of Publish at a time
}

// Limited returns a sink that gives another one no more than the limits allow. What there was no
// time for when the context of a Publish ended is answered with outbox.ErrNotAttempted. It counts
// no attempt, and does not look as if the sink were down.
func Limited(s Sink, limits Limits) Sink {
	if limits == (Limits{}) {
		return s
	}
	l := &limited{Sink: s}
	if limits.Rate > 0 {
		l.burst = max(int(limits.Rate/10), 1)
		l.rate = rate.NewLimiter(rate.Limit(limits.Rate), l.burst)
	}
	if limits.Concurrency > 0 {
		l.calls = make(chan struct{}, limits.Concurrency)
	}
	return l
}

type limited struct {
	Sink
	rate  *rate.Limiter // nil: none
	burst int
	calls chan struct{} // nil: no limit
}

// margin is how long before its context ends a Publish begins no further part of a batch. The sink
// takes time too, and an answer that comes too late is as none.
const margin = 50 * time.Millisecond

func (l *limited) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	if l.calls != nil {
		select {
		case l.calls <- struct{}{}:
			defer func() { <-l.calls }()
		case <-ctx.Done():
			return notAttempted(nil, len(batch))
		}
	}
	if l.rate == nil {
		return l.Sink.Publish(ctx, batch)
	}
	waiting := ctx
	if end, ok := ctx.Deadline(); ok {
		limited, cancel := context.WithDeadline(ctx, end.Add(-margin))
		defer cancel()
		waiting = limited
	}
	results := make([]outbox.Result, 0, len(batch))
	held := outbox.HeldKeys{}
	for len(results) < len(batch) {
		part := batch[len(results):min(len(results)+l.burst, len(batch))]
		if l.rate.WaitN(waiting, len(part)) != nil {
			return notAttempted(results, len(batch))
		}
		results = append(results, l.publish(ctx, part, held)...)
	}
	return results
}

// publish publishes a part of a batch, but for what is behind a failed event of its key in an
// earlier part.
func (l *limited) publish(ctx context.Context, part []outbox.Delivery, held outbox.HeldKeys) []outbox.Result {
	results := notAttempted(nil, len(part))
	var free []outbox.Delivery
	var at []int
	for i, d := range part {
		if held.Behind(d.Record) {
			continue
		}
		free, at = append(free, d), append(at, i)
	}
	if len(free) == 0 {
		return results
	}
	answers := l.Sink.Publish(ctx, free)
	for k, answer := range answers[:min(len(answers), len(free))] {
		results[at[k]] = answer
		if answer.Err != nil {
			held.Hold(free[k].Record)
		}
	}
	return results
}

// notAttempted fills results up.
func notAttempted(results []outbox.Result, n int) []outbox.Result {
	for len(results) < n {
		results = append(results, outbox.Result{Err: outbox.ErrNotAttempted})
	}
	return results
}
