package natsjs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/outboxrelay/outbox"
)

// Bounds of what one Publish has in flight. A stream's queue takes 100,000 messages or 128 MiB of
// all who publish.
const (
	maxPending      = 1000
	maxPendingBytes = 8 << 20
)

// Publish implements outbox.Sink. Where nobody takes a message, or no acknowledgement comes in
// three quarters of the time that ctx leaves, the server is asked whether a stream has its subject.
// If none has, that is the event's own failure; if one has, or nobody can tell, the sink is
// unavailable for it.
//
// It returns as soon as ctx ends. What it then gives up on is waited for by Close.
func (s *Sink) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	p := &publication{
		Sink: s, batch: batch, sent: make([]*nats.Msg, len(batch)), streams: map[string]error{},
		todo: make(chan sending, len(batch)),
	}
	if len(batch) == 0 {
		return nil
	}
	var err error
	if p.link, err = s.connected(ctx); err != nil {
		results := make([]outbox.Result, len(batch))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	s.inFlight.Go(p.write)
	results := outbox.InOrder(ctx, batch, outbox.Sending{
		Messages: maxPending, Bytes: maxPendingBytes, Send: p.send, Judge: p.judge,
	})
	p.over.Store(true)
	close(p.todo)
	p.link.forget(p.sent)
	return results
}

// publication is one call of Publish.
type publication struct {
	*Sink
	link    *link
	batch   []outbox.Delivery
	sent    []*nats.Msg
	streams map[string]error // what is known of subjects that were not answered; see streamless
	todo    chan sending     // holds all there can be, so that nobody waits for write
	over    atomic.Bool
}

// sending is a message on its way to the client.
type sending struct {
	*nats.Msg
	done func(outbox.Result)
}

// write hands messages to the client, which may wait for a server that reads nothing.
func (p *publication) write() {
	for m := range p.todo {
		if !p.over.Load() {
			p.link.send(m.Msg, m.done)
		}
	}
}

func (p *publication) send(i int, done func(outbox.Result)) {
	d := &p.batch[i]
	if err := checkSubject(d.Destination); err != nil {
		done(outbox.Result{Err: outbox.Permanent(fmt.Errorf("publish to NATS: %w", err))})
		return
	}
	p.sent[i] = p.message(d)
	p.todo <- sending{p.sent[i], done}
}

// judge is outbox.Sending.Judge.
func (p *publication) judge(ctx context.Context, i int, r outbox.Result) outbox.Result {
	if errors.Is(r.Err, outbox.ErrNoAnswer) {
		if r.Err = p.streamless(ctx, p.batch[i].Destination); r.Err == nil {
			r.Err = outbox.Unavailable(errors.New("publish to NATS: the stream did not acknowledge in time"))
		}
		return r
	}
	r.Err = p.classify(ctx, i, r.Err)
	return r
}

func interrupted(ctx context.Context) error {
	return outbox.Unavailable(fmt.Errorf("publish to NATS: %w", context.Cause(ctx)))
}
