package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// blockedPatience is how long messages in flight are waited for once RabbitMQ has said that it
// takes none. It has read some of them already; the rest it reads after the alarm.
const blockedPatience = time.Second

// Publish implements outbox.Sink. The package comment says in which order messages go out.
//
// It returns as soon as ctx ends. What is in flight then has an unknown outcome, and its connection
// is not used again.
func (s *Sink) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	if len(batch) == 0 {
		return nil
	}
	link, err := s.acquire(ctx)
	if err == nil && ctx.Err() != nil {
		link.release(false)
		err = interrupted(ctx)
	}
	if err != nil {
		results := make([]outbox.Result, len(batch))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	// A copy, because a pipe that is stuck writing may still look at it when the caller has it
	// back.
	p := &publication{Sink: s, link: link, batch: slices.Clone(batch), done: make([]func(outbox.Result), len(batch)),
		to: make([]address, len(batch)), bad: make([]error, len(batch)), pipes: map[string]*pipe{}}
	results, unknown := p.run(ctx)
	link.release(unknown)
	return results
}

// publication is one call of Publish.
type publication struct {
	*Sink
	link  *link
	batch []outbox.Delivery
	to    []address             // of each delivery
	bad   []error               // of each delivery: its destination is none
	done  []func(outbox.Result) // of each delivery that is under way
	pipes map[string]*pipe      // by exchange
}

// run publishes the batch and tells whether the outcome of some of it is unknown although the
// connection lives.
func (p *publication) run(ctx context.Context) (results []outbox.Result, unknown bool) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	p.prepare(work)
	waiting, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	p.inFlight.Go(func() { p.link.patience(waiting, giveUp) })
	results = outbox.InOrder(waiting, p.batch, outbox.Sending{Send: p.send, Messages: maxInFlight, Bytes: maxBytes})
	if waiting.Err() != nil {
		for i, r := range results {
			if class, _ := outbox.Classify(r.Err); ctx.Err() != nil && class == outbox.ClassUnavailable {
				results[i].Err = interrupted(ctx)
			}
		}
		return results, true
	}
	stop() // nothing is in flight: the pipes give their channels back
	for _, pipe := range p.pipes {
		<-pipe.ended
	}
	return results, false
}

// patience ends a batch a moment after RabbitMQ has said that it takes no messages, unless it takes
// them again.
func (l *link) patience(ctx context.Context, giveUp context.CancelCauseFunc) {
	for {
		select {
		case <-l.blocking():
		case <-ctx.Done():
			return
		}
		if !backoff.Wait(ctx, blockedPatience) {
			return
		}
		if err := l.refusing(); err != nil {
			giveUp(err)
			return
		}
	}
}

// prepare starts a pipe for each exchange.
func (p *publication) prepare(ctx context.Context) {
	sizes := map[string]int{}
	for i := range p.batch {
		if p.to[i], p.bad[i] = parseDestination(p.batch[i].Destination); p.bad[i] == nil {
			sizes[p.to[i].exchange]++
		}
	}
	for exchange, size := range sizes {
		pipe := newPipe(p, exchange, size)
		p.pipes[exchange] = pipe
		p.inFlight.Go(func() { pipe.run(ctx) })
	}
}

// send hands a delivery to its pipe, or answers one that can go nowhere.
func (p *publication) send(i int, done func(outbox.Result)) {
	if err := p.bad[i]; err != nil {
		err = fmt.Errorf("destination %.300q is not one of RabbitMQ's: %w", p.batch[i].Destination, err)
		done(outbox.Result{Err: outbox.Permanent(err)})
		return
	}
	p.done[i] = done
	p.pipes[p.to[i].exchange].work <- i
}

func interrupted(ctx context.Context) error {
	return outbox.Unavailable(fmt.Errorf("publish to RabbitMQ: no confirm came in time: %w", ctx.Err()))
}

var errClosed = errors.New("the RabbitMQ sink is closed")
