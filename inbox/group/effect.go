package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
)

var (
	errTimeout = errors.New("the handler's time is over") // why its context ends
	errHangs   = errors.New("the handler does not return")
)

// handle handles some tasks together and answers them.
func (g *Group[Tx]) handle(ctx context.Context, h *handler[Tx], tasks []*task) {
	leave, err := g.enter(ctx, h)
	if err != nil {
		for _, t := range tasks {
			t.answer <- outbox.Result{Err: outbox.Unavailable(err)}
		}
		return
	}
	for _, t := range tasks {
		close(t.begun)
	}
	defer leave() // a handler that does not return keeps its place: there are never more of them than places
	limited, cancel := context.WithTimeoutCause(ctx, h.Timeout, errTimeout)
	defer cancel()
	var once sync.Once
	answer := func(results []outbox.Result) {
		once.Do(func() {
			for i, t := range tasks {
				t.answer <- g.judge(ctx, limited, results[i])
			}
		})
	}
	stop := context.AfterFunc(limited, func() {
		time.AfterFunc(grace, func() { answer(slices.Repeat([]outbox.Result{{Err: errHangs}}, len(tasks))) })
	})
	defer stop()
	answer(g.effects(limited, h, tasks))
}

// enter waits until a handler may run, and returns what ends that.
func (g *Group[Tx]) enter(ctx context.Context, h *handler[Tx]) (leave func(), err error) {
	for _, places := range []chan struct{}{h.turns, g.slots} {
		if places == nil {
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			if places == g.slots && h.turns != nil {
				<-h.turns
			}
			return nil, fmt.Errorf("wait for a handler's turn: %w", context.Cause(ctx))
		}
	}
	return func() {
		<-g.slots
		if h.turns != nil {
			<-h.turns
		}
	}, nil
}

// effects has the effects of some tasks in one transaction, and answers each. What fails in a batch is left out of a
// second transaction, which has the effects of the others.
func (g *Group[Tx]) effects(ctx context.Context, h *handler[Tx], tasks []*task) []outbox.Result {
	results := make([]outbox.Result, len(tasks))
	todo := make([]int, len(tasks))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		failed, err := g.transact(ctx, h, tasks, todo, results)
		if len(failed) == 0 {
			for _, i := range todo {
				if results[i].Err == nil {
					results[i].Err = err
				}
			}
			break
		}
		var left []int
		for _, i := range todo {
			if cause := failed[i]; cause != nil {
				results[i] = outbox.Result{Err: cause}
			} else {
				left = append(left, i)
			}
		}
		todo = left
	}
	return results
}

// transact is one transaction for the tasks at some indexes. failed are those that the transaction was rolled back for.
func (g *Group[Tx]) transact(
	ctx context.Context, h *handler[Tx], tasks []*task, todo []int, results []outbox.Result,
) (failed map[int]error, err error) {
	ids := make([]inbox.ID, len(todo))
	for at, i := range todo {
		ids[at] = g.idOf(&tasks[i].Delivery)
	}
	err = g.tx.Remember(ctx, g.in, ids, func(tx Tx, answers []inbox.Answer) error {
		var fresh []int
		var events []outbox.Event
		var attempts []int
		for at, i := range todo {
			results[i].Duplicate = answers[at].Result == inbox.Duplicate
			if err := answers[at].Err; err != nil {
				failed = map[int]error{i: err}
				return err
			}
			if d := &tasks[i].Delivery; !results[i].Duplicate {
				fresh, events, attempts = append(fresh, i), append(events, eventOf(d)), append(attempts, d.Attempts+1)
			}
		}
		switch {
		case len(fresh) == 0:
			return nil
		case h.one != nil:
			return recovered(func() error { return h.one(ctx, tx, events[0], attempts[0]) })
		}
		err := recovered(func() error { return h.many(ctx, tx, events, attempts) })
		var some Failures
		if errors.As(err, &some) {
			failed = map[int]error{}
			for at, cause := range some {
				if at < 0 || at >= len(fresh) || cause == nil {
					failed = nil
					return fmt.Errorf("the handler says that message %d of %d failed", at, len(fresh))
				}
				failed[fresh[at]] = cause
			}
			if len(failed) == 0 {
				return nil
			}
		}
		return err
	})
	return failed, err
}

// idOf is what tells a copy of an event. An operator's replay is the same event: where it has had its effect it does
// not have it again.
func (g *Group[Tx]) idOf(d *outbox.Delivery) inbox.ID {
	id := inbox.ID{Event: d.ID.String(), Tenant: d.TenantID, Payload: d.Payload}
	if g.cfg.Intent != nil {
		id.Intent = g.cfg.Intent(eventOf(d))
	}
	return id
}

// judge gives an answer the class and the reason that it has in the table.
func (g *Group[Tx]) judge(ctx, limited context.Context, r outbox.Result) outbox.Result {
	class, _ := outbox.Classify(r.Err)
	switch {
	case r.Err == nil && r.Duplicate && g.cfg.DuplicatesDie:
		return outbox.Result{Err: outbox.Permanent(outbox.Because(outbox.ReasonDuplicateEvent,
			errors.New("the event has had its effect before")))}
	case r.Err == nil:
		return r
	case errors.Is(r.Err, inbox.ErrOtherPayload):
		r.Err = outbox.Permanent(outbox.Because(outbox.ReasonDuplicateEvent, r.Err))
	case ctx.Err() != nil: // the lanes are another's, or the process stops
		r.Err = outbox.Unavailable(fmt.Errorf("%w: %w", context.Cause(ctx), r.Err))
	case errors.Is(context.Cause(limited), errTimeout):
		r.Err = outbox.Because(outbox.ReasonHandlerTimeout, fmt.Errorf("%w: %w", errTimeout, r.Err))
	case class == outbox.ClassRetryable && errors.Is(r.Err, context.DeadlineExceeded): // of a limit of the handler's own
		r.Err = outbox.Because(outbox.ReasonHandlerTimeout, r.Err)
	}
	return outbox.Result{Err: r.Err}
}
