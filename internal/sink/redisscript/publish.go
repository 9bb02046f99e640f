package redisscript

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/fault"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// Bounds of one round. A script keeps Redis from everything else: 1000 deliveries of 500 bytes are
// some 4 ms, 4 MiB of large ones about the same.
const (
	maxDeliveries = 1000
	MaxBytes      = 4 << 20 // a single larger delivery goes alone; less while the server does not take as much, see Bytes
)

// Publish publishes a batch as outbox.Sink asks. A call that fails although the server takes others
// is sent again in parts, down to the one delivery that fails alone: that is the delivery's own,
// retryable error. Where the server takes nothing (no answer, no writes, no rights) the error is of
// class outbox.ClassUnavailable. Either may leave deliveries published: they are answered as
// duplicates when they come again within the window.
//
// Deliveries larger than a call may be go last, so that the others need not wait for them.
//
// It returns as soon as ctx ends. The round trip it then gives up on is waited for by Close.
func (s *Publisher) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	p := &publication{Publisher: s, batch: batch, results: make([]outbox.Result, len(batch)),
		failed: outbox.HeldKeys{}, behind: outbox.HeldKeys{}}
	all := make([]int, len(batch))
	for i := range all {
		all[i] = i
	}
	p.send(ctx, all)
	p.last = true
	p.send(ctx, p.large)
	return p.results
}

// publication is one call of Publish.
type publication struct {
	*Publisher
	batch   []outbox.Delivery
	results []outbox.Result
	failed  outbox.HeldKeys  // within a call the script holds them
	large   []int            // deliveries to be sent after all others, and those behind them in their keys
	behind  outbox.HeldKeys  // of the large ones
	last    bool             // it is their turn
	down    map[string]error // of the groups that take nothing
	blamed  int              // deliveries that failed alone
}

// send publishes the deliveries of these indexes, which ascend, in as many rounds as it takes.
//
// Rounds follow each other, they are not pipelined: what follows a failed delivery of its key may
// be in the next one.
func (p *publication) send(ctx context.Context, todo []int) {
	for len(todo) > 0 {
		if ctx.Err() != nil {
			p.answer(todo, interrupted(ctx))
			return
		}
		r := p.take()
		todo = r.load(p, todo)
		p.round(ctx, r)
		if len(todo) > 0 {
			fault.Hit(fault.MidBatch)
		}
	}
}

// round sends r, and again in parts what of it fails. r is not to be used afterwards.
func (p *publication) round(ctx context.Context, r *round) {
	alone := len(r.used) == 1
	failures := p.trip(ctx, r)
	if len(failures) == 0 {
		return
	}
	if ctx.Err() != nil {
		for _, f := range failures {
			p.answer(f.deliveries, interrupted(ctx))
		}
		return
	}
	dead := p.witness(ctx, failures)
	for n, f := range failures {
		// A witness asks no set. What send says of a delivery is its own answer, so this is of the
		// memory.
		if redis.HasErrorPrefix(f.err, "WRONGTYPE") {
			dead[n] = true
			failures[n].err = fmt.Errorf("a key of what the sink remembers holds something else; delete or rename it: %w", f.err)
		}
	}
	// The memory that a large call has taken is free a moment after its connection was closed.
	for wait := freeAfter; failures[0].large && dead[0] && wait <= 4*freeAfter && backoff.Wait(ctx, wait); wait *= 2 {
		dead = p.witness(ctx, failures)
	}
	for n, f := range failures {
		switch {
		case dead[n]:
			err := p.unavailable(f.err)
			p.answer(f.deliveries, err)
			p.note(f.deliveries)
			if p.down == nil {
				p.down = map[string]error{}
			}
			p.down[f.group] = err
		case !alone: // another call of its connection may be what broke it
			p.send(ctx, f.deliveries)
		default:
			p.reduce(ctx, f)
		}
	}
}

// failure is a call that failed as a whole. Whatever it was (no reply in time, a closed connection,
// OOM, a reply that nobody understands), what it has published is unknown.
type failure struct {
	group             string
	lanes, deliveries []int
	size              int
	large             bool // see round
	err               error
}

// trip makes the round trip and answers the deliveries of the calls that did not fail. r is not to
// be used afterwards.
//
// It takes three quarters of the time that is left at most. The rest is for finding out what it
// was, if it failed.
func (p *publication) trip(ctx context.Context, r *round) (failures []failure) {
	ctx, cancel := late.Most(ctx)
	defer cancel()
	over := p.exchange(ctx, r)
	for _, c := range r.used {
		err := ctx.Err()
		if over {
			if err = c.answer(p.batch, p.results, p.command.Refusal); err == nil {
				p.note(c.deliveries)
				continue
			}
		}
		failures = append(failures, failure{c.group, slices.Clone(c.lanes), slices.Clone(c.deliveries), c.size,
			r.large, err})
	}
	if over { // else the round trip still uses it
		p.give(r)
	}
	return failures
}

// exchange makes the round trip and tells whether it was over before ctx was.
//
// go-redis ends a read at ctx's deadline but does not notice its cancellation, so the wait for it
// is here.
func (s *Publisher) exchange(ctx context.Context, r *round) bool {
	if len(r.used) == 0 {
		return true
	}
	done := make(chan struct{})
	s.inFlight.Go(func() {
		defer close(done)
		s.roundTrip(ctx, r)
	})
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

func interrupted(ctx context.Context) error {
	return outbox.Unavailable(fmt.Errorf("publish to Redis: %w", ctx.Err()))
}

func (s *Publisher) unavailable(err error) error {
	return outbox.Unavailable(fmt.Errorf("run script on Redis: %w", s.hide(err)))
}

// answer gives deliveries that have no answer yet err.
func (p *publication) answer(deliveries []int, err error) {
	for _, i := range deliveries {
		p.results[i] = outbox.Result{Err: err}
	}
}

// note holds the keys of those of the deliveries that failed.
func (p *publication) note(deliveries []int) {
	for _, i := range deliveries {
		if p.results[i].Err != nil {
			p.failed.Hold(p.batch[i].Record)
		}
	}
}
