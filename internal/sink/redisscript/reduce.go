package redisscript

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

const (
	// MaxStrikes is how often a delivery has failed alone, each time before a witness that was
	// answered, when it is blamed. The pauses are for a connection that is cut again and again: it
	// must not cost the delivery an attempt.
	MaxStrikes  = 3
	strikePause = 100 * time.Millisecond // and twice that before the third
	// Strikes are remembered of so many deliveries.
	keptStrikes = 1000

	witnessTimeout = time.Second
	freeAfter      = 50 * time.Millisecond
	// A witness is as large as the call that it stands for, up to this: a connection that breaks
	// after so many bytes breaks under both. No server refuses calls of this size (the least that
	// Redis can be limited to is 1 MiB).
	maxPadding = 16 << 10

	minLimit = 16 << 10 // calls are not made smaller for the server's sake
)

var padding = make(piece, maxPadding)

// witness tells of each failed call whether the server takes nothing where that call went. It is
// the same script with the same keys and no deliveries, so it asks the same node of a Cluster
// whether it takes writes to the same slot.
func (p *publication) witness(ctx context.Context, failures []failure) (dead []bool) {
	ctx, cancel := context.WithTimeout(ctx, witnessTimeout)
	defer cancel()
	r := p.take()
	r.reset()
	for _, f := range failures {
		c := r.use(f.group)
		for _, lane := range f.lanes {
			c.place(lane)
		}
		c.padding = padding[:min(f.size, maxPadding)]
	}
	over := p.exchange(ctx, r)
	dead = make([]bool, len(failures))
	for n := range failures {
		dead[n] = !over || r.used[n].answer(nil, nil, p.command.Refusal) != nil
	}
	if over {
		p.give(r)
	}
	return dead
}

// reduce sends the deliveries of a call that failed although the server lives again, in two calls,
// or answers the one delivery that it had.
func (p *publication) reduce(ctx context.Context, f failure) {
	half := len(f.deliveries) / 2
	if half == 0 {
		p.strike(ctx, f)
		return
	}
	blamed, before := p.blamed, p.Bytes.Shrink(f.size)
	p.send(ctx, f.deliveries[:half])
	p.send(ctx, f.deliveries[half:])
	if p.blamed > blamed {
		p.Bytes.Restore(before) // it was not for the call's size
	}
}

// strike tries a delivery again that has failed alone, until it is blamed.
func (p *publication) strike(ctx context.Context, f failure) {
	i := f.deliveries[0]
	d := &p.batch[i]
	struck := p.strikes.add(d)
	if struck >= MaxStrikes {
		p.blamed++
		p.answer(f.deliveries,
			fmt.Errorf("publish to %s %q: Redis answers, but not to this event (%d bytes of payload) sent alone: %w",
				p.command.Target, d.Destination, len(d.Payload), p.hide(f.err)))
		p.failed.Hold(d.Record)
		return
	}
	// What was too slow would not be faster in the time that is left. It is tried again at its next
	// turn.
	if isTimeout(f.err) || !backoff.Wait(ctx, time.Duration(struck)*strikePause) {
		p.answer(f.deliveries, p.unavailable(f.err))
		p.failed.Hold(d.Record)
		return
	}
	p.send(ctx, f.deliveries)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// strikes are those against deliveries. They are never taken back: a delivery that gets through
// does not come again, and one that was blamed is blamed at once when it fails at its next attempt.
type strikes struct {
	mu sync.Mutex
	of map[struckDelivery]int
}

type struckDelivery struct {
	id   uuid.UUID
	hash uint64
}

// add counts one against d and returns how many it has.
func (s *strikes) add(d *outbox.Delivery) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil || len(s.of) >= keptStrikes {
		s.of = map[struckDelivery]int{}
	}
	of := struckDelivery{d.ID, copyHash(d)}
	s.of[of]++
	return s.of[of]
}
