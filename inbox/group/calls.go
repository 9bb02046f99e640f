package group

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

// call is one of a handler: of one message, or of some that it handles together.
type call[Tx any] struct {
	ctx context.Context
	*handler[Tx]
	tasks  []*task
	timer  *time.Timer // ends the handler's context
	called bool        // the handler was: only then a failure is an attempt
	stage  stage       // guarded by calls.mu
}

// stage is how far a call is: from handling it goes back to idle, or on to hung.
type stage int8

const (
	idle     stage = iota // it waits for a connection, or its transaction is being ended
	handling              // its handler has not returned
	hung                  // its handler has not returned, and its transaction was ended
	ended
)

// answer answers those tasks that have no answer.
func (c *call[Tx]) answer(r outbox.Result) {
	for _, t := range c.tasks {
		t.answer(r)
	}
}

// refuse answers for a call that is not made because its time is over.
func (c *call[Tx]) refuse() {
	c.answer(outbox.Result{Err: fmt.Errorf("wait for a worker: %w", outbox.ErrNotAttempted)})
}

// orderOf identifies the messages that are handled one after another: those of a key, or one that
// has none. A log and what is copied from it into outbox_deliveries have different OrderKeys.
func orderOf(t *task) any {
	if t.Keyed {
		return [3]string{t.TenantID, t.AggregateType, t.AggregateID}
	}
	return t.ID
}

// calls are those that wait for a worker and for their handler's turn, in their order. A worker
// makes one after the other, on one stack: with a goroutine for each call a twelfth of the
// process's work was stacks that grow (measured).
type calls[Tx any] struct {
	mu      sync.Mutex
	some    sync.Cond
	handle  func(*call[Tx])
	waiting []*call[Tx]
	running int
	hung    int          // calls
	blocked map[any]bool // by orderOf their tasks
	closed  bool
	workers sync.WaitGroup
}

func newCalls[Tx any]() *calls[Tx] {
	c := &calls[Tx]{blocked: map[any]bool{}}
	c.some.L = &c.mu
	return c
}

// put has a call wait, unless its context has ended.
func (c *calls[Tx]) put(one *call[Tx]) {
	c.mu.Lock()
	ended := one.ctx.Err() != nil
	if !ended {
		c.waiting = append(c.waiting, one)
		c.some.Signal()
	}
	c.mu.Unlock()
	if ended {
		one.refuse()
	}
}

// start starts a worker.
func (c *calls[Tx]) start() { c.workers.Go(c.work) }

// work makes calls until there will be none. If a handler hangs, another worker goes on.
func (c *calls[Tx]) work() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		at := slices.IndexFunc(c.waiting, func(one *call[Tx]) bool { return one.AtATime == 0 || one.running < one.AtATime })
		switch {
		case at >= 0:
			next := c.waiting[at]
			c.waiting = slices.Delete(c.waiting, at, at+1)
			if replaced := c.run(next); replaced {
				return
			}
		case c.closed:
			return
		default:
			c.some.Wait()
		}
	}
}

// run makes a call, without the lock. Whoever has made one looks for the next, so nobody is told of
// the turn that is free.
func (c *calls[Tx]) run(one *call[Tx]) (replaced bool) {
	c.running++
	one.running++
	c.mu.Unlock()
	gone := true
	defer func() {
		c.mu.Lock()
		if replaced = one.stage == hung; replaced {
			c.hung--
			for _, t := range one.tasks {
				delete(c.blocked, orderOf(t))
			}
		} else {
			c.running--
			one.running--
			if gone {
				c.start() // the handler has ended the goroutine, as FailNow of a test does
			}
		}
		one.stage = ended
	}()
	c.handle(one)
	gone = false
	return replaced
}

// begin notes that a handler is about to be called, and starts its time. It is false if that is too
// late.
func (c *calls[Tx]) begin(one *call[Tx], limited context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.stage == ended || limited.Err() != nil {
		return false
	}
	if !one.called {
		one.timer.Reset(one.Timeout)
	}
	one.stage, one.called = handling, true
	return true
}

// finish notes that a handler has returned. It is false if the call hung, and has been answered.
func (c *calls[Tx]) finish(one *call[Tx]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.stage == handling {
		one.stage = idle
	}
	return one.stage == idle
}

// blocks tells whether a handler of the task's key hangs.
func (c *calls[Tx]) blocks(t *task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocked[orderOf(t)]
}

// abandon gives the place of a call whose handler has not returned to another worker, and tells how
// many hang then. 0: the handler has returned, or will not be called.
func (c *calls[Tx]) abandon(one *call[Tx]) (hang int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.stage != handling {
		one.stage = ended
		return 0
	}
	one.stage = hung
	c.running--
	one.running--
	c.hung++
	for _, t := range one.tasks {
		c.blocked[orderOf(t)] = true
	}
	c.start()
	return c.hung
}

// drop refuses the calls of a context that wait for a worker.
func (c *calls[Tx]) drop(ctx context.Context) {
	var dropped []*call[Tx]
	c.mu.Lock()
	c.waiting = slices.DeleteFunc(c.waiting, func(one *call[Tx]) bool {
		if one.ctx == ctx {
			dropped = append(dropped, one)
		}
		return one.ctx == ctx
	})
	c.mu.Unlock()
	for _, one := range dropped {
		one.refuse()
	}
}

// close has the workers end with the last call.
func (c *calls[Tx]) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.some.Broadcast()
}

// underWay is how many calls have not returned.
func (c *calls[Tx]) underWay() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running + c.hung
}
