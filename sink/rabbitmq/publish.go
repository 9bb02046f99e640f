package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// blockedPatience is how long messages in flight are waited for once RabbitMQ has said that it takes none. It has read
// some of them already; the rest it reads after the alarm.
const blockedPatience = time.Second

// Publish implements outbox.Sink. The package comment says in which order messages go out.
//
// It returns as soon as ctx ends. What is in flight then has an unknown outcome, and its connection is not used again.
func (s *publisher) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	// A copy, because a pipe that is stuck writing may still look at it when the caller has it back.
	p := &publication{
		publisher: s, batch: slices.Clone(batch), results: make([]outbox.Result, len(batch)), left: len(batch),
	}
	if len(batch) == 0 {
		return p.results
	}
	if ctx.Err() != nil {
		return p.all(interrupted(ctx))
	}
	link, err := s.acquire(ctx)
	if err != nil {
		return p.all(err)
	}
	p.link = link
	unknown := p.run(ctx)
	link.release(unknown)
	return p.results
}

// publication is one call of Publish.
type publication struct {
	*publisher
	link     *link
	batch    []outbox.Delivery
	results  []outbox.Result
	left     int       // deliveries without an answer
	answered []bool    // by delivery
	to       []address // of each delivery
	bad      []error   // of each delivery: its destination is none
	chains   map[int64]*chain
	pipes    map[string]*pipe // by exchange
	done     chan outcome     // from the pipes; holds all there can be, so that no pipe waits
}

// chain is the deliveries of one ordering key. RabbitMQ may refuse a single message at any time (no binding, a queue
// that is full). So one event of a key is in flight at a time, with all its destinations.
type chain struct {
	waiting []int
	flying  int
	failed  bool
	event   uuid.UUID // that failed: its other destinations still go out
}

// outcome is a pipe's answer for one delivery.
type outcome struct {
	delivery int
	err      error
}

// run publishes the batch and tells whether the outcome of some of it is unknown although the connection lives.
func (p *publication) run(ctx context.Context) (unknown bool) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	p.prepare(work)
	p.begin()
	blocked := p.link.blocking()
	var patience <-chan time.Time
	for p.left > 0 {
		select {
		case o := <-p.done:
			p.settle(o)
		case <-blocked:
			blocked, patience = nil, time.After(blockedPatience)
		case <-patience:
			err := p.link.refusing()
			if err == nil { // it takes messages again
				patience = nil
				continue
			}
			p.giveUp(err)
			return true
		case <-ctx.Done():
			p.giveUp(interrupted(ctx))
			return true
		}
	}
	stop() // nothing is in flight: the pipes give their channels back
	for _, pipe := range p.pipes {
		<-pipe.ended
	}
	return false
}

// prepare starts a pipe for each exchange and sorts the deliveries into chains.
func (p *publication) prepare(ctx context.Context) {
	p.answered, p.done = make([]bool, len(p.batch)), make(chan outcome, len(p.batch))
	p.to, p.bad = make([]address, len(p.batch)), make([]error, len(p.batch))
	p.chains, p.pipes = map[int64]*chain{}, map[string]*pipe{}
	sizes := map[string]int{}
	for i := range p.batch {
		d := &p.batch[i]
		if p.to[i], p.bad[i] = parseDestination(d.Destination); p.bad[i] == nil {
			sizes[p.to[i].exchange]++
		}
		if d.Keyed {
			c := p.chains[d.OrderKey]
			if c == nil {
				c = &chain{}
				p.chains[d.OrderKey] = c
			}
			c.waiting = append(c.waiting, i)
		}
	}
	for exchange, size := range sizes {
		pipe := newPipe(p, exchange, size)
		p.pipes[exchange] = pipe
		p.inFlight.Go(func() { pipe.run(ctx) })
	}
}

// begin hands over the first event of each key and all that have none.
func (p *publication) begin() {
	for i := range p.batch {
		d := &p.batch[i]
		if !d.Keyed {
			p.dispatch(i)
		} else if c := p.chains[d.OrderKey]; c.flying == 0 {
			p.advance(c)
		}
	}
}

// advance hands over the next event of a key of which nothing is in flight, or answers what is held back.
func (p *publication) advance(c *chain) {
	var event uuid.UUID
	for len(c.waiting) > 0 {
		i := c.waiting[0]
		switch id := p.batch[i].ID; {
		case c.failed && id != c.event:
			p.answer(i, outbox.ErrNotAttempted)
		case c.flying > 0 && id != event:
			return
		default:
			event = id
			p.dispatch(i)
		}
		c.waiting = c.waiting[1:]
	}
}

// dispatch hands a delivery to its pipe, or answers one that can go nowhere.
func (p *publication) dispatch(i int) {
	if err := p.bad[i]; err != nil {
		err = fmt.Errorf("destination %.300q is not one of RabbitMQ's: %w", p.batch[i].Destination, err)
		p.fail(i, outbox.Permanent(err))
		return
	}
	if p.batch[i].Keyed {
		p.chains[p.batch[i].OrderKey].flying++
	}
	p.pipes[p.to[i].exchange].work <- i
}

// settle notes a pipe's answer.
func (p *publication) settle(o outcome) {
	if p.left > 1 {
		fault.Hit(fault.MidBatch)
	}
	d := &p.batch[o.delivery]
	if d.Keyed {
		p.chains[d.OrderKey].flying--
	}
	p.fail(o.delivery, o.err)
	if d.Keyed && p.chains[d.OrderKey].flying == 0 {
		p.advance(p.chains[d.OrderKey])
	}
}

// fail answers a delivery; with an error its key is held from here on.
func (p *publication) fail(i int, err error) {
	p.answer(i, err)
	if d := &p.batch[i]; d.Keyed && err != nil {
		if c := p.chains[d.OrderKey]; !c.failed {
			c.failed, c.event = true, d.ID
		}
	}
}

func (p *publication) answer(i int, err error) {
	p.results[i].Err = err
	p.answered[i] = true
	p.left--
}

// giveUp answers all that has no answer, but for those that are there already.
func (p *publication) giveUp(err error) {
	for {
		select {
		case o := <-p.done:
			p.answer(o.delivery, o.err)
			continue
		default:
		}
		break
	}
	for i := range p.batch {
		if !p.answered[i] {
			p.answer(i, err)
		}
	}
}

func (p *publication) all(err error) []outbox.Result {
	for i := range p.results {
		p.results[i].Err = err
	}
	return p.results
}

func interrupted(ctx context.Context) error {
	return outbox.Unavailable(fmt.Errorf("publish to RabbitMQ: no confirm came in time: %w", ctx.Err()))
}

var errClosed = errors.New("the RabbitMQ sink is closed")
