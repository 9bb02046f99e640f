package group

import (
	"context"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// sink is the group as the relay sees it: to publish an event is to handle it.
type sink[Tx any] struct{ g *Group[Tx] }

// Abilities implements outbox.Able. A batch may take as long as its slowest handler, and the lease is held meanwhile.
func (s sink[Tx]) Abilities() outbox.Abilities {
	longest := s.g.cfg.Timeout
	for _, h := range s.g.handlers {
		longest = max(longest, h.Timeout)
	}
	return outbox.Abilities{Timeout: func() time.Duration { return longest + grace }}
}

// grace is how long a handler whose time is over has to return.
const grace = time.Second

// batchFor is how long messages are gathered for one call of HandleBatch.
const batchFor = 2 * time.Millisecond

// Publish implements outbox.Sink. A relay that says how long it waits has the answers of slower handlers later
// (internal/sink/late), so that they delay only their own keys.
func (s sink[Tx]) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	gathered := map[*handler[Tx]]chan *task{}
	defer func() {
		for _, tasks := range gathered {
			close(tasks)
		}
	}()
	return outbox.InOrder(context.WithoutCancel(ctx), batch, outbox.Sending{Send: func(i int, done func(outbox.Result)) {
		d := &batch[i]
		if !s.g.owns(d.Record) {
			done(outbox.Result{})
			return
		}
		h, err := s.g.find(d)
		if err != nil {
			done(outbox.Result{Err: err})
			return
		}
		t := &task{Delivery: *d, begun: make(chan struct{}), answer: make(chan outbox.Result, 1)}
		switch {
		case h.one != nil:
			s.g.under.Go(func() { s.g.handle(ctx, h, []*task{t}) })
		case gathered[h] == nil:
			gathered[h] = make(chan *task)
			s.g.under.Go(func() { s.g.gather(ctx, h, gathered[h]) })
			fallthrough
		default:
			gathered[h] <- t
		}
		s.g.under.Go(func() { done(s.g.await(ctx, t)) })
	}})
}

// owns tells whether an event is of a type that is the group's.
func (g *Group[Tx]) owns(rec *outbox.Record) bool {
	return len(g.cfg.Only) == 0 || slices.ContainsFunc(g.cfg.Only, func(pattern string) bool {
		of := outbox.Subscription{Topic: pattern}
		return of.Fits(rec)
	})
}

// task is a message that is to be handled.
type task struct {
	outbox.Delivery
	begun  chan struct{} // closed once its handler runs
	answer chan outbox.Result
}

// await waits for the answer of a task. A patient relay gets what takes longer than its patience as a late.Answer.
func (g *Group[Tx]) await(ctx context.Context, t *task) outbox.Result {
	patience, patient := late.Patience(ctx)
	if !patient {
		return <-t.answer
	}
	select {
	case r := <-t.answer:
		return r
	case <-t.begun:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-t.answer:
		return r
	case <-timer.C:
	}
	comes := make(chan error, 1)
	g.under.Go(func() { r := <-t.answer; comes <- r.Err })
	return outbox.Result{Err: outbox.Postponed(&late.Answer{C: comes}, patience)}
}

// gather has tasks handled together that come within batchFor of the first, until there will be none.
func (g *Group[Tx]) gather(ctx context.Context, h *handler[Tx], tasks <-chan *task) {
	for first := range tasks {
		all := []*task{first}
		timer := time.NewTimer(batchFor)
	gathering:
		for len(all) < h.Batch {
			select {
			case t, ok := <-tasks:
				if !ok {
					break gathering
				}
				all = append(all, t)
			case <-timer.C:
				break gathering
			}
		}
		timer.Stop()
		g.under.Go(func() { g.handle(ctx, h, all) })
	}
}
