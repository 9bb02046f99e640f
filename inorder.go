package outbox

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/fault"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// ErrNoAnswer is what InOrder says of a message that was sent and not answered in time. It may have
// arrived.
var ErrNoAnswer = errors.New("no answer came in time")

// Sending is how InOrder sends a batch.
type Sending struct {
	// Send sends the delivery at index i and has done called once with what came of it, by any
	// goroutine, be it before Send returns. It does not wait for the answer, unless it can end with
	// ctx only.
	Send func(i int, done func(Result))
	// Judge says what an answer with an error means for its event, and ErrNoAnswer too. It may ask
	// the server: it is called by the goroutine of InOrder, and for what has no answer once three
	// quarters of the time are over. Nil: an answer is what it is, and ErrNoAnswer is of
	// ClassUnavailable.
	Judge func(ctx context.Context, i int, r Result) Result
	// Messages and Bytes of payload are how much is under way together; 0 is no bound. A larger
	// message goes alone.
	Messages, Bytes int
}

// InOrder publishes a batch message by message, and is the order of keys for a Sink that does so.
// An event is sent, to all of its destinations at once, when the one before it of its key has its
// answers. After a failure the later events of the key are answered with ErrNotAttempted. Events
// without a key, and of different keys, are under way together; those with a lower index begin
// first. Nothing is sent in the last quarter of the time that ctx gives, so that a slow server has
// answered by its end; what is left is of ClassNotAttempted. InOrder returns when all is answered
// or ctx ends. What has no answer then is of ClassUnavailable, for the cause of ctx.
func InOrder(ctx context.Context, batch []Delivery, s Sending) []Result {
	o := &ordering{
		Sending: s, batch: batch, chains: make([]*chain, len(batch)),
		results: make([]Result, len(batch)), states: make([]sendState, len(batch)),
		answers: make(chan answer, len(batch)), // whoever answers after the end waits for nobody
	}
	o.arrange()
	sending, cancel := late.Most(ctx)
	defer cancel()
	waiting := ctx
	if s.Judge != nil { // whose the rest of the time is
		waiting = sending
	}
	for hit := false; ; {
		o.sendReady(sending)
		if o.pending == 0 && (len(o.ready) == 0 || sending.Err() != nil) {
			break
		}
		select {
		case a := <-o.answers:
			o.take(ctx, a)
			if !hit && o.pending > 0 {
				fault.Hit(fault.MidBatch)
				hit = true
			}
			continue
		case <-waiting.Done():
		}
		break
	}
	o.giveUp(ctx)
	return o.results
}

// ordering is one call of InOrder.
type ordering struct {
	Sending
	batch          []Delivery
	chains         []*chain // of each delivery the one that it is of
	ready          []int    // ascending
	pending, bytes int      // under way
	answers        chan answer
	results        []Result
	states         []sendState
}

type sendState int8

const (
	unsent sendState = iota
	underway
	answered
)

type answer struct {
	i int
	Result
}

// chain is what goes out one event after another: the deliveries of a key, or of an event without
// one.
type chain struct {
	todo    []int     // deliveries that are not ready yet
	pending int       // those that are, and have no answer
	event   uuid.UUID // whose deliveries those are
	failed  bool      // it has: its other destinations are served, later events are not
}

type chainOf struct {
	key   int64
	event uuid.UUID // of those without a key
}

// arrange makes the chains and begins each.
func (o *ordering) arrange() {
	known := make(map[chainOf]*chain, len(o.batch))
	var all []*chain
	for i := range o.batch {
		d := &o.batch[i]
		of := chainOf{event: d.ID}
		if d.Keyed {
			of = chainOf{key: d.OrderKey}
		}
		c := known[of]
		if c == nil {
			c = &chain{}
			known[of], all = c, append(all, c)
		}
		c.todo, o.chains[i] = append(c.todo, i), c
	}
	for _, c := range all {
		o.advance(c)
	}
}

// advance makes what is next of a chain ready: an event with all of its destinations. One that it
// names twice waits: a server may refuse a copy of what it is about to store, without calling it a
// duplicate.
func (o *ordering) advance(c *chain) {
	if c.failed {
		c.todo = slices.DeleteFunc(c.todo, func(i int) bool {
			behind := o.batch[i].ID != c.event
			if behind {
				o.answer(i, Result{Err: ErrNotAttempted})
			}
			return behind
		})
	}
	n := 0
	for ; n < len(c.todo); n++ {
		d := &o.batch[c.todo[n]]
		again := func(i int) bool { return o.batch[i].Destination == d.Destination }
		if d.ID != o.batch[c.todo[0]].ID || slices.ContainsFunc(c.todo[:n], again) {
			break
		}
		c.event = d.ID
	}
	for _, i := range c.todo[:n] {
		at, _ := slices.BinarySearch(o.ready, i)
		o.ready = slices.Insert(o.ready, at, i)
	}
	c.todo, c.pending = c.todo[n:], n
}

// sendReady sends what is ready, as far as the bounds allow.
func (o *ordering) sendReady(ctx context.Context) {
	for len(o.ready) > 0 && ctx.Err() == nil {
		i := o.ready[0]
		size := len(o.batch[i].Payload)
		full := o.Messages > 0 && o.pending >= o.Messages || o.Bytes > 0 && o.bytes+size > o.Bytes
		if o.pending > 0 && full {
			return
		}
		o.ready, o.states[i] = o.ready[1:], underway
		o.pending++
		o.bytes += size
		o.Send(i, func(r Result) { o.answers <- answer{i, r} })
	}
}

// take takes an answer, and goes on with its chain when it was the last that the chain waited for.
func (o *ordering) take(ctx context.Context, a answer) {
	if o.states[a.i] == answered {
		return
	}
	if a.Err != nil && o.Judge != nil {
		a.Result = o.Judge(ctx, a.i, a.Result)
	}
	o.answer(a.i, a.Result)
	o.pending--
	o.bytes -= len(o.batch[a.i].Payload)
	c := o.chains[a.i]
	c.failed = c.failed || a.Err != nil
	if c.pending--; c.pending == 0 {
		o.advance(c)
	}
}

func (o *ordering) answer(i int, r Result) { o.results[i], o.states[i] = r, answered }

// giveUp answers what has no answer.
func (o *ordering) giveUp(ctx context.Context) {
	for len(o.answers) > 0 { // that came meanwhile
		o.take(ctx, <-o.answers)
	}
	for i, state := range o.states {
		if state != underway {
			continue
		}
		r := Result{Err: Unavailable(cmp.Or(context.Cause(ctx), ErrNoAnswer))}
		if o.Judge != nil {
			r = o.Judge(ctx, i, Result{Err: ErrNoAnswer})
		}
		o.answer(i, r)
		c := o.chains[i]
		c.failed, c.event = c.failed || r.Err != nil, o.batch[i].ID
	}
	for _, c := range o.chains {
		if c.failed {
			o.advance(c)
		}
	}
	left := errNoTime
	if ctx.Err() != nil {
		left = Unavailable(context.Cause(ctx))
	}
	for i, state := range o.states {
		if state != answered {
			o.answer(i, Result{Err: left})
		}
	}
}

var errNoTime error = &classedError{class: ClassNotAttempted,
	error: errors.New("not attempted: the time was over before it was this event's turn")}
