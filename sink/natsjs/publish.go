package natsjs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// Bounds of what one Publish has in flight. A stream's queue takes 100,000 messages or 128 MiB of all who publish.
const (
	maxPending      = 1000
	maxPendingBytes = 8 << 20 // a single larger message goes alone
)

// Publish implements outbox.Sink. Where nobody takes a message, or no acknowledgement comes in three quarters of the
// time that ctx leaves, the server is asked whether a stream has its subject. If none has, that is the event's own
// failure; if one has, or nobody can tell, the sink is unavailable for it.
//
// It returns as soon as ctx ends. What it then gives up on is waited for by Close.
func (s *publisher) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	p := &publication{
		publisher: s, batch: batch, results: make([]outbox.Result, len(batch)), answered: make([]bool, len(batch)),
		sent: make([]*nats.Msg, len(batch)), answers: make(chan answer, len(batch)), streams: map[string]error{},
	}
	done := make(chan struct{})
	s.inFlight.Go(func() {
		defer close(done)
		p.run(ctx)
	})
	select {
	case <-done:
	case <-ctx.Done(): // the client may be in the middle of writing to a server that reads nothing
	}
	return p.close(interrupted(ctx))
}

// publication is one call of Publish.
type publication struct {
	*publisher
	link  *link
	batch []outbox.Delivery

	chains  []*chain // of each delivery the one that it is of
	ready   []int    // deliveries to be sent
	sent    []*nats.Msg
	pending int // deliveries in flight
	bytes   int // of them
	answers chan answer
	streams map[string]error // what is known of subjects that were not answered; see streamless

	mu       sync.Mutex // results and answered, which Publish takes when ctx ends
	results  []outbox.Result
	answered []bool
	closed   bool
}

// chain is what goes out one event after another: the deliveries of a key, or of an event without one.
type chain struct {
	todo    []int // deliveries that are not ready yet
	pending int   // those that are, and have no answer
	event   uuid.UUID
	failed  bool // the event: its other destinations are served, later events are not
}

type chainKey struct {
	key   int64
	event uuid.UUID // of those without a key
}

func (p *publication) run(ctx context.Context) {
	if len(p.batch) == 0 {
		return
	}
	var err error
	if p.link, err = p.connected(ctx); err != nil {
		p.answerRest(err)
		return
	}
	p.arrange()
	waiting, cancel := part(ctx)
	defer cancel()
	for hit := false; ; {
		p.sendReady(waiting)
		if p.pending == 0 {
			return // nothing is ready either
		}
		select {
		case a := <-p.answers:
			p.take(ctx, a)
		case <-waiting.Done():
			p.giveUp(ctx)
			return
		}
		if !hit && p.pending > 0 {
			fault.Hit(fault.MidBatch)
			hit = true
		}
	}
}

// part is three quarters of the time that ctx leaves. The rest is for finding out why an answer does not come.
func part(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*3/4)
}

// arrange makes the chains and begins each.
func (p *publication) arrange() {
	p.chains = make([]*chain, len(p.batch))
	known := make(map[chainKey]*chain, len(p.batch))
	var all []*chain
	for i := range p.batch {
		d := &p.batch[i]
		k := chainKey{event: d.ID}
		if d.Keyed {
			k = chainKey{key: d.OrderKey}
		}
		c := known[k]
		if c == nil {
			c = &chain{}
			known[k] = c
			all = append(all, c)
		}
		c.todo = append(c.todo, i)
		p.chains[i] = c
	}
	for _, c := range all {
		p.advance(c)
	}
}

// advance makes what is next of a chain ready: an event with all of its destinations. One that it names twice waits,
// because a cluster refuses a copy of what it is about to store, without calling it a duplicate.
func (p *publication) advance(c *chain) {
	if c.failed {
		c.todo = slices.DeleteFunc(c.todo, func(i int) bool {
			held := p.batch[i].ID != c.event
			if held {
				p.answer(i, outbox.Result{Err: outbox.ErrNotAttempted})
			}
			return held
		})
	}
	n := 0
	for ; n < len(c.todo); n++ {
		d := &p.batch[c.todo[n]]
		again := func(i int) bool { return p.batch[i].Destination == d.Destination }
		if d.ID != p.batch[c.todo[0]].ID || slices.ContainsFunc(c.todo[:n], again) {
			break
		}
		c.event = d.ID
	}
	p.ready = append(p.ready, c.todo[:n]...)
	c.todo, c.pending = c.todo[n:], n
}

// sendReady sends what is ready, as far as the bounds allow.
func (p *publication) sendReady(ctx context.Context) {
	for len(p.ready) > 0 && ctx.Err() == nil {
		i := p.ready[0]
		d := &p.batch[i]
		size := len(d.Payload)
		if p.pending > 0 && (p.pending >= maxPending || p.bytes+size > maxPendingBytes) {
			return
		}
		p.ready = p.ready[1:]
		p.pending++
		p.bytes += size
		if err := checkSubject(d.Destination); err != nil {
			p.answers <- answer{i: i, err: outbox.Permanent(fmt.Errorf("publish to NATS: %w", err))}
			continue
		}
		p.sent[i] = p.message(d)
		p.link.send(p.sent[i], waiter{p.answers, i})
	}
}

// take takes an answer, and goes on with its chain when it was the last that the chain waited for.
func (p *publication) take(ctx context.Context, a answer) {
	result := outbox.Result{Duplicate: a.duplicate}
	if a.err != nil {
		result.Err = p.classify(ctx, a)
	}
	p.answer(a.i, result)
	p.pending--
	p.bytes -= len(p.batch[a.i].Payload)
	c := p.chains[a.i]
	c.failed = c.failed || result.Err != nil
	if c.pending--; c.pending == 0 {
		p.advance(c)
	}
}

// answer is lost on a publication that Publish has given up on.
func (p *publication) answer(i int, result outbox.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.results[i], p.answered[i] = result, true
	}
}

func (p *publication) isAnswered(i int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answered[i]
}

// answerRest gives those that have no answer err.
func (p *publication) answerRest(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answerRestLocked(err)
}

func (p *publication) answerRestLocked(err error) {
	for i := range p.results {
		if !p.answered[i] && !p.closed {
			p.results[i], p.answered[i] = outbox.Result{Err: err}, true
		}
	}
}

// close returns the results, the rest answered with err. They do not change any more.
func (p *publication) close(err error) []outbox.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answerRestLocked(err)
	p.closed = true
	return p.results
}

// giveUp answers what has no answer when time is over. What was sent may be in a stream or not.
func (p *publication) giveUp(ctx context.Context) {
	var sent []*nats.Msg
	for i, m := range p.sent {
		if m != nil && !p.isAnswered(i) {
			sent = append(sent, m)
		}
	}
	p.link.forget(sent)
	for len(p.answers) > 0 { // that came meanwhile
		p.take(ctx, <-p.answers)
	}
	for i, m := range p.sent {
		if m == nil || p.isAnswered(i) {
			continue
		}
		err := p.streamless(ctx, m.Subject)
		if err == nil {
			err = outbox.Unavailable(errNoAnswer)
		}
		p.answer(i, outbox.Result{Err: err})
		c := p.chains[i]
		c.failed, c.event = true, p.batch[i].ID
	}
	for _, c := range p.chains {
		if c.failed {
			p.advance(c)
		}
	}
	if ctx.Err() == nil {
		p.answerRest(outbox.Unavailable(errNoTime))
	}
}

var (
	errNoAnswer = errors.New("publish to NATS: the stream did not acknowledge in time")
	errNoTime   = errors.New("publish to NATS: the time was over before it was this event's turn")
)

func interrupted(ctx context.Context) error {
	return outbox.Unavailable(fmt.Errorf("publish to NATS: %w", context.Cause(ctx)))
}
