package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
)

// Bounds of what a Publish has in flight. RabbitMQ returns an unroutable message with its body, so
// this is also what returns may take.
const (
	maxInFlight = 1000
	maxBytes    = 8 << 20
	large       = 1 << 20 // of a body: it goes alone, because RabbitMQ closes the channel over one it finds too large
)

// pipe publishes the deliveries of a batch to one exchange, on a channel of its own. Only its
// goroutine uses it.
type pipe struct {
	*publication
	exchange string
	work     chan int // holds all there can be, so that nobody waits for the pipe
	ended    chan struct{}

	c        *channel // nil before the first message, and after it was closed
	next     *flight  // does not fit yet
	again    []int    // known not to be published, to be sent again
	flying   []*flight
	marks    map[mark]bool   // of what is flying
	returned map[mark]string // why RabbitMQ returned messages in flight
	declared map[string]bool // queues
	refusal  error           // of the exchange, which takes nothing
	buf      []byte
}

// flight is a message that is sent or about to be.
type flight struct {
	delivery  int
	mark      mark
	m         amqp.Publishing // until it is sent
	alone     bool
	confirmed *amqp.DeferredConfirmation
}

// mark is what a returned message is recognised by. Two with the same are never in flight together.
type mark struct{ id, key string }

func newPipe(p *publication, exchange string, size int) *pipe {
	return &pipe{publication: p, exchange: exchange, work: make(chan int, size), ended: make(chan struct{}),
		marks: map[mark]bool{}, returned: map[mark]string{}}
}

// run publishes what comes until ctx ends.
func (p *pipe) run(ctx context.Context) {
	defer close(p.ended)
	for ctx.Err() == nil {
		if p.next == nil && len(p.again) > 0 {
			i := p.again[0]
			p.again = p.again[1:]
			p.build(i)
		}
		if p.next != nil && p.fits() {
			p.send()
			continue
		}
		var work <-chan int
		if p.next == nil {
			work = p.work
		}
		var confirmed <-chan struct{}
		if len(p.flying) > 0 {
			confirmed = p.flying[0].confirmed.Done()
		}
		select {
		case i := <-work:
			p.build(i)
		case <-confirmed:
			p.confirm()
		case <-ctx.Done():
		}
	}
	// A channel with messages in flight is not used again; it goes with its connection.
	if p.c != nil && len(p.flying) == 0 && !p.c.IsClosed() {
		p.link.keep(p.c)
	}
}

// build makes the message of a delivery the next one, unless it is answered already.
func (p *pipe) build(i int) {
	if p.refusal != nil {
		p.reply(i, p.refusal)
		return
	}
	m, err := p.safely(i)
	if err != nil {
		p.reply(i, p.failure(i, err))
		return
	}
	a := p.to[i]
	p.next = &flight{delivery: i, mark: mark{m.MessageId, a.key}, m: m,
		alone: len(m.Body) > large || !p.link.hasTaken(p.exchange) || p.caution.wants(a)}
}

// safely builds a message with an envelope that may panic: in this goroutine nobody else would
// notice.
func (p *pipe) safely(i int) (m amqp.Publishing, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("build the message: the envelope panicked: %v", r)
		}
	}()
	m, p.buf, err = p.message(&p.batch[i], p.buf, p.link.conn.Config.FrameSize)
	return m, err
}

// fits tells whether the next message can go now.
func (p *pipe) fits() bool {
	if len(p.flying) == 0 {
		return true
	}
	return !p.next.alone && !p.flying[0].alone && !p.c.IsClosed() && !p.marks[p.next.mark]
}

// send publishes the next message. It waits if the channel was closed since fits: lost needs the
// channel of the messages in flight.
func (p *pipe) send() {
	if len(p.flying) > 0 && p.c.IsClosed() {
		return
	}
	f := p.next
	p.next = nil
	if err := p.link.refusing(); err != nil {
		p.reply(f.delivery, err)
		return
	}
	if len(p.flying) == 0 && p.c != nil && p.c.IsClosed() {
		p.c = nil
	}
	var err error
	if p.c == nil {
		p.c, err = p.link.open()
	}
	if err == nil {
		f.confirmed, err = p.c.PublishWithDeferredConfirm(p.exchange, f.mark.key, true, false, f.m)
	}
	if err != nil {
		p.reply(f.delivery, outbox.Unavailable(fmt.Errorf("publish to RabbitMQ: %w", err)))
		return
	}
	f.m = amqp.Publishing{}
	p.flying = append(p.flying, f)
	p.marks[f.mark] = true
}

// confirm answers the first message in flight, or all of them if the channel is closed.
func (p *pipe) confirm() {
	p.collect()
	f := p.flying[0]
	switch {
	case f.confirmed.Acked():
		p.flying = p.flying[1:]
		p.acked(f)
	case p.c.IsClosed():
		p.lost()
	default:
		p.flying = p.flying[1:]
		p.landed(f)
		p.reply(f.delivery, p.failure(f.delivery,
			errors.New("RabbitMQ refused the message (nack): a queue is full (overflow reject-publish) or failed")))
	}
}

// collect notes the returns that have come: those of all messages that are confirmed by now.
func (p *pipe) collect() {
	for {
		select {
		case r, ok := <-p.c.returns:
			if !ok {
				return
			}
			p.returned[mark{r.MessageId, r.RoutingKey}] = fmt.Sprintf("%s (%d)", r.ReplyText, r.ReplyCode)
		default:
			return
		}
	}
}

// acked answers a message that RabbitMQ has confirmed: it does so for those it has returned too.
func (p *pipe) acked(f *flight) {
	p.landed(f)
	why, returned := p.returned[f.mark]
	if !returned {
		p.reply(f.delivery, nil)
		return
	}
	delete(p.returned, f.mark)
	if p.exchange == "" && p.cfg.Declare && !p.declared[f.mark.key] {
		if p.declared == nil {
			p.declared = map[string]bool{}
		}
		p.declared[f.mark.key] = true
		if err := p.declare(f.mark.key); err != nil {
			p.reply(f.delivery, p.failure(f.delivery, fmt.Errorf("declare the queue: %w", err)))
			return
		}
		p.again = append(p.again, f.delivery)
		return
	}
	remedy := "bind a queue for it"
	if p.exchange == "" {
		remedy = "create the queue, or have the sink do it (declare=quorum)"
	}
	p.reply(f.delivery, p.failure(f.delivery,
		fmt.Errorf("RabbitMQ returned the message, it has no queue to put it into: %s: %s", why, remedy)))
}

// landed is called for a message that has left its channel open.
func (p *pipe) landed(f *flight) {
	delete(p.marks, f.mark)
	if f.alone {
		p.caution.harmless(p.to[f.delivery])
		p.link.noteTaken(p.exchange, true)
	}
}

// declare makes a durable quorum queue, on a channel that it may close.
func (p *pipe) declare(queue string) error {
	ch, err := p.link.conn.Channel()
	if err != nil {
		return err
	}
	_, err = ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	if err != nil {
		return err // which has closed it
	}
	return ch.Close()
}

// lost answers all messages in flight on a channel that was closed. A confirmed one is answered as
// ever. If a single one is left it is what RabbitMQ closed the channel for; of several nobody knows
// which of them were published.
func (p *pipe) lost() {
	why := p.c.why()
	flying := p.flying
	p.c, p.flying = nil, nil
	var unknown []*flight
	for _, f := range flying {
		if f.confirmed.Acked() {
			p.acked(f)
		} else {
			delete(p.marks, f.mark)
			unknown = append(unknown, f)
		}
	}
	clear(p.returned)
	gone := p.link.conn.IsClosed()
	if len(unknown) == 1 && !gone && why != nil {
		p.blame(unknown[0], why)
		return
	}
	what := "RabbitMQ closed the channel"
	if gone {
		what = "the connection to RabbitMQ is lost"
	}
	if !gone && why != nil {
		p.link.noteTaken(p.exchange, false)
		if why.Code != amqp.NotFound { // of the exchange: the next message to it finds out alone
			p.caution.suspectExchange(p.exchange)
		}
	}
	for _, f := range unknown {
		err := fmt.Errorf("publish to RabbitMQ: %s, the outcome is unknown: %w", what, errorOf(why))
		p.reply(f.delivery, outbox.Unavailable(err))
	}
}

// why returns what a closed channel was closed with, or nil.
func (c *channel) why() *amqp.Error {
	select {
	case e := <-c.closed:
		return e
	default:
		return nil
	}
}

func errorOf(e *amqp.Error) error {
	if e == nil {
		return amqp.ErrClosed
	}
	return e
}

// blame answers the one message for which RabbitMQ has closed the channel.
func (p *pipe) blame(f *flight, why *amqp.Error) {
	var remedy string
	var size, most int64
	whole := false // whether nothing else gets into the exchange
	_, scanErr := fmt.Sscanf(strings.TrimPrefix(why.Reason, "PRECONDITION_FAILED - "),
		"message size %d is larger than configured max size %d", &size, &most)
	switch {
	case why.Code == amqp.NotFound:
		remedy, whole = ": create the exchange", true
	case why.Code == amqp.AccessRefused:
		remedy = ": give the user of the URL the right to write there"
		whole = strings.Contains(why.Reason, "access to exchange")
	case scanErr == nil:
		p.largest.Store(most)
	}
	err := p.failure(f.delivery, fmt.Errorf("%w%s", why, remedy))
	if scanErr == nil {
		err = outbox.Permanent(err)
	}
	if whole {
		p.refusal = fmt.Errorf("publish to exchange %q: %w%s", p.exchange, why, remedy)
		p.link.noteTaken(p.exchange, false)
	} else {
		p.caution.found(p.to[f.delivery])
	}
	p.reply(f.delivery, err)
}

func (p *pipe) failure(delivery int, err error) error {
	return fmt.Errorf("publish to %s: %w", p.to[delivery], err)
}

func (p *pipe) reply(delivery int, err error) { p.done[delivery](outbox.Result{Err: err}) }
