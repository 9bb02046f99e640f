package group

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/outboxrelay/outbox"
)

// call is one of a handler: of one message, or of some that it handles together.
type call[Tx any] struct {
	ctx context.Context
	*handler[Tx]
	tasks []*task
}

// answer answers those tasks that have no answer.
func (c *call[Tx]) answer(r outbox.Result) {
	for _, t := range c.tasks {
		t.answer(r)
	}
}

// refuse answers for a call that is not made because its time is over.
func (c *call[Tx]) refuse() {
	c.answer(outbox.Result{Err: outbox.Unavailable(fmt.Errorf("wait for a handler's turn: %w", context.Cause(c.ctx)))})
}

// calls are those that wait for a worker and for their handler's turn, in their order. A worker
// makes one after the other, on one stack: with a goroutine for each call a twelfth of the
// process's work was stacks that grow (measured).
type calls[Tx any] struct {
	mu      sync.Mutex
	some    sync.Cond
	waiting []*call[Tx]
	running int
	closed  bool
	workers sync.WaitGroup
}

func newCalls[Tx any]() *calls[Tx] {
	c := new(calls[Tx])
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
func (c *calls[Tx]) start(handle func(*call[Tx])) { c.workers.Go(func() { c.work(handle) }) }

// work makes calls until there will be none. A handler that does not return keeps its worker and
// its turn.
func (c *calls[Tx]) work(handle func(*call[Tx])) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		at := slices.IndexFunc(c.waiting, func(one *call[Tx]) bool { return one.AtATime == 0 || one.running < one.AtATime })
		switch {
		case at >= 0:
			next := c.waiting[at]
			c.waiting = slices.Delete(c.waiting, at, at+1)
			c.run(next, handle)
		case c.closed:
			return
		default:
			c.some.Wait()
		}
	}
}

// run makes a call, without the lock. Whoever has made one looks for the next, so nobody is told of
// the turn that is free.
func (c *calls[Tx]) run(one *call[Tx], handle func(*call[Tx])) {
	c.running++
	one.running++
	c.mu.Unlock()
	returned := false
	defer func() {
		if !returned {
			c.start(handle) // the handler has ended the goroutine, as FailNow of a test does
		}
		c.mu.Lock()
		c.running--
		one.running--
	}()
	handle(one)
	returned = true
}

// drop refuses the calls of a context that has ended: all workers may hang.
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
	return c.running
}
