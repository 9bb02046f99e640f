package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
)

// chunk is what a round has for one partition. It fits one batch of Kafka's, which the broker takes
// or refuses as a whole. Where the client makes two of it after all, both are appended before the
// first is written, so the client fails the second with the first. If the second is on its way by
// then, the broker refuses it for the gap in its sequence numbers.
type chunk struct {
	*partition
	deliveries []int
	records    []*kgo.Record
	size       int

	errs []error // of each record; to be read after done
	left atomic.Int64
	lost atomic.Bool   // one has failed
	done chan struct{} // closed when all have an outcome
}

func newChunk(to *partition) *chunk {
	return &chunk{partition: to, size: batchOverhead, done: make(chan struct{})}
}

func (c *chunk) add(i int, r *kgo.Record) {
	c.deliveries = append(c.deliveries, i)
	if c.name != "" { // else a transaction, which is of several partitions
		r.Partition = c.number
	}
	c.records = append(c.records, r)
	c.size += sizeOf(r)
}

// send publishes the chunks and answers their deliveries, but for those to be sent again in smaller
// ones, which it returns.
func (p *publication) send(ctx context.Context, chunks []*chunk) (again []int) {
	var ready []*chunk
	for _, c := range chunks {
		c.errs = make([]error, len(c.records))
		c.left.Store(int64(len(c.records)))
		select {
		case c.turn <- struct{}{}:
			ready = append(ready, c)
		default: // another call has it: who publishes to other partitions does not wait for that
			p.working.Go(func() {
				select {
				case c.turn <- struct{}{}:
					p.append(ctx, c)
				case <-ctx.Done():
				}
			})
		}
	}
	p.append(ctx, ready...)
	for _, c := range chunks {
		if !c.wait(ctx) {
			for _, i := range c.deliveries {
				p.fail(i, interrupted(ctx))
			}
			continue
		}
		again = append(again, p.settle(ctx, c)...)
	}
	return again
}

// wait waits for the outcome, and tells whether there was one before ctx ended.
func (c *chunk) wait(ctx context.Context) bool {
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done:
		default:
			return false
		}
	}
	return true
}

// append hands the chunks, whose turn it is, to the client. Their turn ends with the outcome of the
// last record.
func (n *session) append(ctx context.Context, chunks ...*chunk) {
	n.forgetting.RLock()
	defer n.forgetting.RUnlock()
	n.gate.closed(func() {
		for _, c := range chunks {
			forgotten := c.count.Load() == 0
			for at, r := range c.records {
				if forgotten {
					c.finish(at, errForgotten)
					continue
				}
				if c.lost.Load() {
					c.finish(at, errBehind)
					continue
				}
				n.client.TryProduce(ctx, r, func(_ *kgo.Record, err error) { c.finish(at, err) })
			}
		}
	})
}

// errBehind is the outcome of a record that was not handed to the client because one before it had
// failed by then.
var errBehind = errors.New("a record before it failed")

// errForgotten is the outcome of a chunk whose topic was forgotten before the client had it. The
// client would keep its records until it knows the topic again, and then append them one by one
// behind an open gate.
var errForgotten = errors.New("its topic is looked up again")

func (c *chunk) finish(at int, err error) {
	if err != nil {
		c.errs[at] = err
		c.lost.Store(true)
	}
	if c.left.Add(-1) == 0 {
		close(c.done)
		<-c.turn
	}
}

// failure returns the first error of a chunk that is done.
func (c *chunk) failure() error {
	for _, err := range c.errs {
		if err != nil && !errors.Is(err, errBehind) {
			return err
		}
	}
	return nil
}

// settle answers the deliveries of a chunk that is done, or returns those to be sent again.
func (p *publication) settle(ctx context.Context, c *chunk) (again []int) {
	err := c.failure()
	if err == nil {
		if p.most[c.partition] > 0 {
			p.most[c.partition] *= 2
		}
		return nil
	}
	if errors.Is(err, errForgotten) {
		return c.deliveries
	}
	switch p.blame(ctx, c.topic, err) {
	case blamesBroker:
		err = outbox.Unavailable(fmt.Errorf("publish to topic %s: %w", c.name, p.hide(err)))
		for at, i := range c.deliveries {
			if c.errs[at] != nil {
				p.fail(i, err)
			}
		}
		return nil
	case blamesTopic:
		err = topicError(c.name, err)
	case blamesRecords:
		if len(c.records) > 1 {
			return p.reduce(c, err)
		}
		err = refusal(c.name, err)
	}
	for at, i := range c.deliveries {
		if c.errs[at] != nil && !p.hold(i) {
			p.fail(i, err)
		}
	}
	return nil
}

// reduce has a chunk that was refused as a whole sent again in smaller ones, down to the record
// that is refused alone.
func (p *publication) reduce(c *chunk, err error) (again []int) {
	if p.most == nil {
		p.most = map[*partition]int{}
	}
	p.most[c.partition] = len(c.records) / 2
	if isTooLarge(err) {
		c.limit.Store(int64(c.size / 2))
	}
	for at, i := range c.deliveries {
		if c.errs[at] != nil {
			again = append(again, i)
		}
	}
	return again
}

func isTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// refusal is the error of a record that was refused alone.
func refusal(topic string, err error) error {
	switch {
	case isTooLarge(err):
		return outbox.Permanent(fmt.Errorf("publish to topic %s: larger than its max.message.bytes: %w", topic, err))
	case errors.Is(err, kerr.InvalidRecord):
		return fmt.Errorf("publish to topic %s (a compacted topic takes no event without a key): %w", topic, err)
	}
	return fmt.Errorf("publish to topic %s: %w", topic, err)
}

// blame says whose an error is.
type blame int

const (
	blamesBroker  blame = iota // waiting may cure it, or what became of the records is unknown
	blamesTopic                // whoever publishes to it
	blamesRecords              // at least one of them is refused: nothing of the batch was published
)

// blame judges the error of a record, and forgets what it proves to be wrong.
func (p *publication) blame(ctx context.Context, t *topic, err error) blame {
	var said *kerr.Error
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()), !errors.As(err, &said):
		return blamesBroker
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		p.forget(t)
		return blamesTopic
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.InvalidTopicException):
		p.forget(t)
		return blamesTopic
	case isRight(err):
		p.renew(p.session)
		return blamesBroker
	case said.Retriable, isAuth(err):
		return blamesBroker
	}
	return blamesRecords
}

// isRight tells whether the user lacks a right on the cluster: the client asks once, and is refused
// for good.
func isRight(err error) bool {
	return errors.Is(err, kerr.ClusterAuthorizationFailed) || errors.Is(err, kerr.TransactionalIDAuthorizationFailed)
}

// isAuth tells whether the cluster does not know the user or the password.
func isAuth(err error) bool {
	return errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.UnsupportedSaslMechanism) ||
		errors.Is(err, kerr.IllegalSaslState)
}
