// Package rabbitmq publishes events to RabbitMQ by AMQP 0-9-1: the destination is an exchange with
// a routing key, or a queue.
//
// # Destinations
//
//	orders                 the queue orders, by the default exchange
//	events/order.placed    the exchange events, with routing key order.placed
//	events/                the exchange events, with an empty routing key (fanout, headers)
//	/a/b                   the queue a/b: what follows the first slash is taken as it is
//	a%2Fb/key              the exchange a/b: in its name a slash is written %2F, and % is written %25
//
// Destination writes them.
//
// # What is guaranteed
//
//   - A delivery that was answered without error was confirmed by RabbitMQ and not returned. A
//     confirm alone says nothing: a message that no queue takes is confirmed too. Messages are
//     persistent. What a confirm promises is the queue's: a durable classic queue has written the
//     message to disk, a quorum queue has it on a majority of nodes.
//   - Deliveries of one ordering key go out in the order of the batch, and none after a failed
//     event of its key. RabbitMQ may refuse one message and take the next (no binding for its
//     routing key, a queue that was full a moment ago), so the next event of a key is sent when the
//     one before it is confirmed. Different keys, and events without one, are in flight together,
//     up to 1000 messages of a call.
//   - What one destination does harms no other. RabbitMQ closes the channel over a missing exchange
//     or a missing right, and what was in flight on it is lost or not, nobody knows: each exchange
//     has a channel of its own, its first message on a connection goes alone, and so does whatever
//     is suspected. So the event fails that is to blame, with RabbitMQ's reason.
//   - A connection that breaks is made again by the next Publish or Ping. While RabbitMQ takes no
//     messages (memory or disk alarm) Publish says so and sends none.
//   - Exchanges, queues and bindings are left alone, unless Config.Declare asks for queues.
//   - No password reaches an error.
//
// # What is not
//
//   - RabbitMQ refuses no copy. An answer that was lost, a relay that died before it settled: the
//     event comes again. Consumers recognise it by the property message-id, the event id, which is
//     the same in every copy. A replayed event has it too.
//   - A queue that is not durable, or whose consumers are gone, loses messages as it always does.
//     An exchange that has an alternate exchange takes everything.
//   - The topic is the property type only if it has at most 255 bytes, the most that AMQP takes.
//   - Streams are published to like queues, without the publishing ids by which they could refuse
//     copies.
//
// # What consumers get
//
// The properties message-id (event id), type (topic), timestamp (seconds), content-type and
// delivery-mode 2, and as headers traceparent and tracestate if the event's metadata has them. In
// binary mode the body is the payload, and the attributes are headers with the prefix
// "cloudEvents_" and values of text. The AMQP binding of CloudEvents is written for AMQP 1.0, to
// which RabbitMQ translates headers as application-properties. Of its two prefixes it is the one
// that headers exchanges, shovels and JMS clients take without quoting.
//
// # What it needs
//
// RabbitMQ 3.8 or later (tested with 3.10), and a user with the right to write to the exchanges,
// the default exchange included (RabbitMQ calls it amq.default). With Config.Declare also the right
// to configure the queues.
package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
)

// Config configures a Sink. Zero means the default in parentheses.
type Config struct {
	// Envelope builds the message (outbox.CloudEvent).
	Envelope outbox.Envelope
	// Binary sends CloudEvents in binary mode: the attributes are headers, the body is the payload.
	// Envelope, and that of a table, do not matter then.
	Binary bool
	// Watermill sends what watermill-amqp's DefaultMarshaler reads: the body is the payload; event
	// id, attributes (ce_…) and texts of the metadata are headers. The Envelope does not matter
	// then.
	Watermill bool
	// Declare makes a durable quorum queue where a destination without an exchange names a queue
	// that does not exist.
	Declare bool
	// TLS replaces the system's certificate authorities or adds a client certificate, for Open with
	// an amqps:// URL.
	TLS *tls.Config
}

// Sink is an outbox.Sink that publishes to RabbitMQ. It is safe for concurrent use.
type Sink struct {
	connect connector
	cfg     Config
	turn    chan struct{} // held by who connects
	caution caution
	largest atomic.Int64 // body in bytes that the server takes, 0 while it has not said

	mu      sync.Mutex
	link    *link // nil before the first and after it broke
	closed  bool
	wait    time.Duration // between attempts to connect
	retry   time.Time     // not before
	failure error         // of the last attempt

	inFlight sync.WaitGroup // goroutines, of which Publish may have stopped waiting
}

var _ outbox.Sink = (*Sink)(nil)

type connector func(ctx context.Context) (*amqp.Connection, error)

// New returns a Sink with connections that connect makes, for settings that no URL has. It does not
// connect: the first Publish or Ping does. The sink closes the connections, and calls connect again
// when one is closed. The client's own recovery must be off, since it would lose what is in flight
// without saying so.
func New(connect func(ctx context.Context) (*amqp.Connection, error), cfg Config) (*Sink, error) {
	var problems []error
	if connect == nil {
		problems = append(problems, errors.New("connect is nil"))
	}
	if cfg.TLS != nil {
		problems = append(problems, errors.New("TLS is for Open: connect has its own"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("configure RabbitMQ sink: %w", err)
	}
	return newSink(connect, cfg), nil
}

func newSink(connect connector, cfg Config) *Sink {
	return &Sink{connect: connect, cfg: cfg, turn: make(chan struct{}, 1)}
}

// Abilities implements outbox.Able.
func (s *Sink) Abilities() outbox.Abilities {
	return outbox.Abilities{Ping: s.ping, TakesCopies: true}
}

// ping asks whether RabbitMQ answers and takes messages, and connects if need be. Errors are of
// class outbox.ClassUnavailable.
func (s *Sink) ping(ctx context.Context) error {
	l, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	s.inFlight.Go(func() {
		ch, err := l.conn.Channel()
		if err == nil {
			err = ch.Close()
		}
		done <- err
	})
	select {
	case err = <-done:
		l.release(false)
	case <-ctx.Done():
		err = ctx.Err()
		l.release(true)
	}
	if err != nil {
		return outbox.Unavailable(fmt.Errorf("ping RabbitMQ: %w", err))
	}
	return nil
}

// Close closes the connection and waits for what is under way. Call it after the last Publish has
// returned.
func (s *Sink) Close() error {
	s.mu.Lock()
	l := s.link
	s.link, s.closed = nil, true
	s.mu.Unlock()
	var err error
	if l != nil {
		err = l.conn.CloseDeadline(time.Now().Add(farewell))
		if errors.Is(err, amqp.ErrClosed) { // it was already
			err = nil
		}
	}
	s.inFlight.Wait()
	if err != nil {
		return fmt.Errorf("close the connection to RabbitMQ: %w", err)
	}
	return nil
}
