package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
)

var (
	errTimeout = errors.New("the handler's time is over") // why its context ends
	errHangs   = errors.New("the handler does not return although its context has ended")
	errBlocked = errors.New("an earlier call of the key's handler has not returned")
	errGone    = errors.New("the handler ended its goroutine (runtime.Goexit, or FailNow of a test)")
)

const (
	// blockedFor is how long an event waits whose key is blocked by a handler that hangs.
	blockedFor = 2 * time.Second
	// maxHung is how many handlers may hang before Run ends: each keeps its stack and its events.
	maxHung = 1000
)

// handle makes a call and answers its tasks.
func (g *Group[Tx]) handle(c *call[Tx]) {
	for _, t := range c.tasks {
		t.begin()
	}
	limited, end := context.WithCancelCause(c.ctx) // the handler's
	defer end(nil)
	whole, cut := context.WithCancel(context.WithoutCancel(c.ctx)) // the transaction's, which may yet commit
	defer cut()
	c.timer = time.AfterFunc(c.Timeout, func() { end(errTimeout) })
	defer c.timer.Stop()
	defer context.AfterFunc(limited, func() {
		time.AfterFunc(grace, func() { g.abandon(c, limited); cut() })
	})()
	defer c.answer(outbox.Result{Err: errGone})
	for i, r := range g.effects(limited, whole, c) {
		c.tasks[i].answer(g.judge(c, limited, r))
	}
}

// abandon goes on without a handler that has not returned. Its attempt counts, and it will have no
// effect.
func (g *Group[Tx]) abandon(c *call[Tx], limited context.Context) {
	hang := g.calls.abandon(c)
	if hang == 0 {
		return
	}
	first := c.tasks[0]
	g.cfg.Relay.Logger.Error("handler does not return although its context has ended; its key waits for it",
		"event", first.ID, "key", first.AggregateID, "topic", first.Topic, "messages", len(c.tasks), "hanging", hang)
	c.answer(g.judge(c, limited, outbox.Result{Err: errHangs}))
	if hang >= maxHung {
		g.stop()
	}
}

// effects has the effects of some tasks in one transaction, and answers each. What fails in a batch
// is left out of a second transaction, which has the effects of the others.
func (g *Group[Tx]) effects(limited, whole context.Context, c *call[Tx]) []outbox.Result {
	results := make([]outbox.Result, len(c.tasks))
	todo := make([]int, len(c.tasks))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		failed, err := g.transact(limited, whole, c, todo, results)
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
// was rolled back for. The handler has the context limited, the transaction the context whole.
func (g *Group[Tx]) transact(
	limited, whole context.Context, c *call[Tx], todo []int, results []outbox.Result,
) (failed map[int]error, err error) {
	ids := make([]inbox.ID, len(todo))
	for at, i := range todo {
		ids[at] = g.idOf(&c.tasks[i].Delivery)
	}
	err = g.tx.Remember(whole, g.in, ids, func(tx Tx, answers []inbox.Answer) error {
		var fresh []int
		var batch []*outbox.Delivery
		for at, i := range todo {
			results[i].Duplicate = answers[at].Result == inbox.Duplicate
			err := answers[at].Err
			if err == nil && !results[i].Duplicate && g.calls.blocks(c.tasks[i]) {
				err = outbox.Postponed(errBlocked, blockedFor)
			}
			if err != nil {
				failed = map[int]error{i: err}
				return err
			}
			if d := &c.tasks[i].Delivery; !results[i].Duplicate {
				fresh, batch = append(fresh, i), append(batch, d)
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		if app := batch[0].AppID; app != uuid.Nil && g.tx.SetTenant != nil { // a batch is of one application
			if err := g.tx.SetTenant(whole, tx, app); err != nil {
				return err
			}
		}
		if !g.calls.begin(c, limited) {
			return errTimeout
		}
		err := recovered(func() error {
			if c.one != nil {
				return c.one(limited, tx, batch[0])
			}
			return c.many(limited, tx, batch)
		})
		switch {
		case !g.calls.finish(c):
			return errHangs
		case err == nil && limited.Err() != nil:
			return context.Cause(limited) // too late: what another process may do by now is not committed
		case c.one != nil:
			return err
		}
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
func (g *Group[Tx]) judge(c *call[Tx], limited context.Context, r outbox.Result) outbox.Result {
	class, _ := outbox.Classify(r.Err)
	switch {
	case r.Err == nil && r.Duplicate && g.cfg.DuplicatesDie:
		return outbox.Result{Err: outbox.Permanent(outbox.Because(outbox.ReasonDuplicateEvent,
			errors.New("the event has had its effect before")))}
	case r.Err == nil:
		return r
	case errors.Is(r.Err, inbox.ErrOtherPayload):
		r.Err = outbox.Permanent(outbox.Because(outbox.ReasonDuplicateEvent, r.Err))
	case c.ctx.Err() != nil && !errors.Is(r.Err, errHangs): // the lanes are another's, or the process stops
		r.Err = outbox.Unavailable(fmt.Errorf("%w: %w", context.Cause(c.ctx), r.Err))
	case !c.called && class == outbox.ClassRetryable && limited.Err() != nil: // no connection was free, for example
		r.Err = fmt.Errorf("call the handler: %w: %w", outbox.ErrNotAttempted, r.Err)
	case !c.called && class == outbox.ClassRetryable:
		r.Err = outbox.Unavailable(r.Err)
	case errors.Is(context.Cause(limited), errTimeout):
		r.Err = outbox.Because(outbox.ReasonHandlerTimeout, fmt.Errorf("%w: %w", errTimeout, r.Err))
	case class == outbox.ClassRetryable && errors.Is(r.Err, context.DeadlineExceeded): // of a limit of the handler's own
		r.Err = outbox.Because(outbox.ReasonHandlerTimeout, r.Err)
	}
	return outbox.Result{Err: r.Err}
}
