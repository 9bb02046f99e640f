package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
)

var (
	errTimeout = errors.New("the handler's time is over") // why its context ends
	errHangs   = errors.New("the handler does not return")
	errGone    = errors.New("the handler ended its goroutine (runtime.Goexit, or FailNow of a test)")
)

// handle makes a call and answers its tasks.
func (g *Group[Tx]) handle(c *call[Tx]) {
	for _, t := range c.tasks {
		t.begin()
	}
	limited, cancel := context.WithTimeoutCause(c.ctx, c.Timeout, errTimeout)
	defer cancel()
	defer context.AfterFunc(limited, func() {
		time.AfterFunc(grace, func() { c.answer(g.judge(c.ctx, limited, outbox.Result{Err: errHangs})) })
	})()
	defer c.answer(outbox.Result{Err: errGone})
	for i, r := range g.effects(limited, c.handler, c.tasks) {
		c.tasks[i].answer(g.judge(c.ctx, limited, r))
	}
}

// effects has the effects of some tasks in one transaction, and answers each. What fails in a batch
// is left out of a second transaction, which has the effects of the others.
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

// transact is one transaction for the tasks at some indexes. failed are those that the transaction
// was rolled back for.
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

// idOf is what tells a copy of an event. An operator's replay is the same event: where it has had
// its effect it does not have it again.
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
