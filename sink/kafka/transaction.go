package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
)

// transacting is the state of a sink with a transactional id: one transaction at a time.
type transacting struct {
	turn   chan struct{} // of one
	open   *session      // whose last transaction has no known end
	fenced time.Time     // when another producer took the id
}

// fencedFor is how long the transactional id is left to the producer that took it. To take it back
// at once would abort what that one is publishing, and two relays that were given one id by mistake
// would do nothing else.
const fencedFor = 30 * time.Second

var errFenced = errors.New("another producer has taken the transactional id: each process needs its own")

// transactions publishes what todo names in one transaction, and in several where some of it is
// refused.
func (p *publication) transactions(ctx context.Context, todo []int) {
	select {
	case p.transacting.turn <- struct{}{}:
	case <-ctx.Done():
		p.interrupt(ctx, todo)
		return
	}
	defer func() { <-p.transacting.turn }()
	p.session = p.current() // the call before may have renewed it
	if found := p.find(ctx, todo); found != nil {
		p.learn(ctx, found)
	}
	if ctx.Err() != nil {
		p.interrupt(ctx, todo)
		return
	}
	var whole []int
	free := map[*topic]int{}
	for _, i := range todo {
		if p.hold(i) {
			continue
		}
		d := &p.batch[i]
		t, n, err := p.prepare(i)
		if err == nil && n == 0 {
			err = outbox.Unavailable(fmt.Errorf("topic %s is not known any more", d.Destination))
		}
		if err != nil {
			p.fail(i, err)
			continue
		}
		p.records[i].Partition = p.place(d, p.records[i], t, n, free).number
		whole = append(whole, i)
	}
	p.transact(ctx, whole)
}

// transact publishes deliveries in one transaction. Where Kafka refuses some, what is left goes in
// smaller ones.
func (p *publication) transact(ctx context.Context, todo []int) {
	var rest []int
	for _, i := range todo {
		if !p.hold(i) {
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return
	}
	if ctx.Err() != nil {
		p.interrupt(ctx, rest)
		return
	}
	c, err := p.attempt(ctx, rest)
	if err != nil {
		for _, i := range rest {
			p.fail(i, outbox.Unavailable(fmt.Errorf("publish to Kafka in a transaction: %w", p.hide(err))))
		}
		return
	}
	if c.failure() != nil {
		p.divide(ctx, c)
	}
}

// divide answers the deliveries of topics that take nothing, and publishes the others again: in
// halves, if it is not known which of them is refused.
func (p *publication) divide(ctx context.Context, c *chunk) {
	var rest []int
	refused := false
	for at, i := range c.deliveries {
		err := c.errs[at]
		name := p.batch[i].Destination
		switch {
		case p.hold(i):
		case err == nil:
			rest = append(rest, i)
		case p.blame(ctx, p.topic(name), err) == blamesTopic:
			p.fail(i, topicError(name, err))
		case p.blame(ctx, p.topic(name), err) == blamesBroker:
			p.fail(i, outbox.Unavailable(fmt.Errorf("publish to topic %s: %w", name, p.hide(err))))
		case len(c.deliveries) == 1:
			p.fail(i, refusal(name, err))
		default:
			refused = true
			rest = append(rest, i)
		}
	}
	if !refused {
		p.transact(ctx, rest)
		return
	}
	p.transact(ctx, rest[:len(rest)/2])
	p.transact(ctx, rest[len(rest)/2:])
}

// attempt makes one transaction. Its error says that nothing is known of it, or that there was
// none. Else the chunk tells: without a failure it was committed, with one it was aborted.
func (p *publication) attempt(ctx context.Context, deliveries []int) (*chunk, error) {
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	if err := p.client.BeginTransaction(); err != nil {
		return nil, p.ended(err)
	}
	p.transacting.open = p.session
	c := newChunk(&partition{topic: &topic{}, turn: make(chan struct{}, 1)})
	c.turn <- struct{}{}
	for _, i := range deliveries {
		c.add(i, p.records[i])
	}
	c.errs = make([]error, len(c.records))
	c.left.Store(int64(len(c.records)))
	for at, r := range c.records {
		p.client.TryProduce(ctx, r, func(_ *kgo.Record, err error) { c.finish(at, err) })
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	end := kgo.TryCommit
	if c.failure() != nil {
		end = kgo.TryAbort
	}
	if err := p.client.EndTransaction(ctx, end); err != nil {
		return nil, p.ended(err)
	}
	p.transacting.open = nil
	return c, nil
}

// ready ends a transaction that was left without an end, and has the client take the transactional
// id: whatever another producer of the id has begun is aborted then.
func (p *publication) ready(ctx context.Context) error {
	if wait := fencedFor - time.Since(p.transacting.fenced); !p.transacting.fenced.IsZero() {
		if wait > 0 {
			return fmt.Errorf("%w; it is left to that one for another %s", errFenced, wait.Round(time.Second))
		}
		p.transacting.fenced, p.transacting.open = time.Time{}, nil
		p.renew(p.session)
		p.session = p.current()
	}
	if p.transacting.open == p.session {
		if err := p.client.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		if err := p.client.EndTransaction(ctx, kgo.TryAbort); err != nil {
			return p.ended(err)
		}
		p.transacting.open = nil
	}
	_, _, err := p.client.ProducerID(ctx)
	return p.ended(err)
}

// ended notes what an error of the transaction's coordinator says of this producer.
func (p *publication) ended(err error) error {
	switch {
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		p.transacting.fenced = time.Now()
		return fmt.Errorf("%w: %w", errFenced, err)
	case isRight(err):
		p.renew(p.session)
	}
	return err
}
