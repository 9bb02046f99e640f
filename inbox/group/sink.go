package group

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// sink is the group as the relay sees it: to publish an event is to handle it.
type sink[Tx any] struct{ g *Group[Tx] }

// Abilities implements outbox.Able. A batch may wait for connections as long as its slowest handler
// may take, and then take as long. The lease is held meanwhile.
func (s sink[Tx]) Abilities() outbox.Abilities {
	longest := s.g.cfg.Timeout
	for _, h := range s.g.handlers {
		longest = max(longest, h.Timeout)
	}
	return outbox.Abilities{Timeout: func() time.Duration { return 2 * (longest + grace) }}
}

// grace is how long a handler whose time is over has to return.
const grace = time.Second

// batchFor is how long messages are gathered for one call of HandleBatch.
const batchFor = 2 * time.Millisecond

// Publish implements outbox.Sink. A relay that says how long it waits has the answers of slower
// handlers later (internal/sink/late), so that they delay only their own keys.
func (s sink[Tx]) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	type together struct { // a batch
		*handler[Tx]
		app uuid.UUID
	}
	gathered := map[together]chan *task{}
	defer func() {
		for _, tasks := range gathered {
			close(tasks)
		}
	}()
	defer context.AfterFunc(ctx, func() { s.g.calls.drop(ctx) })()
	patience, _ := late.Patience(ctx)
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
		t := &task{Delivery: *d, done: done, patience: patience}
		switch {
		case h.one != nil:
			s.g.calls.put(&call[Tx]{ctx: ctx, handler: h, tasks: []*task{t}})
		case gathered[together{h, d.AppID}] == nil:
			gathered[together{h, d.AppID}] = make(chan *task)
			go s.g.gather(ctx, h, gathered[together{h, d.AppID}])
			fallthrough
		default:
			gathered[together{h, d.AppID}] <- t
		}
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
	done     func(outbox.Result)
	patience time.Duration // that the relay has for it once it has begun; 0: it waits

	mu       sync.Mutex
	answered bool
	tarries  *time.Timer
	late     chan error // the answer, once patience is over
}

// begin notes that the handler is called.
func (t *task) begin() {
	if t.patience == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tarries = time.AfterFunc(t.patience, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.answered {
			t.late = make(chan error, 1)
			t.done(outbox.Result{Err: outbox.Postponed(&late.Answer{C: t.late}, t.patience)})
		}
	})
}

// answer answers the task, unless it has an answer.
func (t *task) answer(r outbox.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answered {
		return
	}
	t.answered = true
	if t.tarries != nil {
		t.tarries.Stop()
	}
	if t.late == nil {
		t.done(r)
	} else {
		t.late <- r.Err
	}
}

// gather has tasks handled together that come within batchFor of the first, until there will be
// none.
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
		g.calls.put(&call[Tx]{ctx: ctx, handler: h, tasks: all})
	}
}
