// Package rabbitmq receives the messages of a queue of RabbitMQ for package source.
//
// Guaranteed: a message is acknowledged after its row. The messages of the queue are written in
// their order: it has one consumer at a time, and others wait for their turn. What that one has not
// acknowledged is in its old place in the queue again before another gets it.
//
// Not guaranteed: that a message without a message-id is written once. RabbitMQ has nothing else
// that tells a copy. Nor the order of a queue with several consumers, which are possible where it
// is Shared, and at quorum queues, which ignore that a consumer wants to be alone: declare those
// with x-single-active-consumer.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox/source"
)

// Config says what is received. Zero means the default in parentheses.
type Config struct {
	URL   string // amqp:// or amqps://; required
	Queue string // which must be there; required
	Batch int    // most messages of a batch (500)
	// Shared lets others consume beside this one (nobody). A classic queue with
	// x-single-active-consumer needs it: there the server has the others wait, and refuses who
	// wants to be alone.
	Shared bool
	// Dial makes the connection, such as with certificates (amqp.Dial).
	Dial func(url string) (*amqp.Connection, error)
}

// Source is a source.Source.
type Source struct {
	cfg      Config
	conn     *amqp.Connection
	channel  *amqp.Channel
	messages <-chan amqp.Delivery
	closed   chan *amqp.Error
}

// New returns a source, which connects when it is asked for messages. Close it after source.Run.
func New(cfg Config) (*Source, error) {
	if cfg.URL == "" || cfg.Queue == "" {
		return nil, errors.New("configure source: URL and Queue are required")
	}
	if _, err := amqp.ParseURI(cfg.URL); err != nil {
		return nil, errors.New("configure source: URL is none of AMQP") // the cause may have the password
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 500
	}
	if cfg.Dial == nil {
		cfg.Dial = amqp.Dial
	}
	return &Source{cfg: cfg}, nil
}

// Close gives the queue to others.
func (s *Source) Close() {
	if s.conn != nil {
		_ = s.conn.Close() // what was not acknowledged is in the queue again in any case
	}
	s.conn = nil
}

// Receive implements source.Source. After an error it connects anew.
func (s *Source) Receive(ctx context.Context) (source.Batch, error) {
	if s.conn == nil || s.conn.IsClosed() || s.channel.IsClosed() {
		s.Close()
		if err := s.consume(); err != nil {
			s.Close()
			return source.Batch{}, err
		}
	}
	received := source.Gather(ctx, s.messages, s.cfg.Batch)
	switch {
	case ctx.Err() != nil:
		return source.Batch{}, ctx.Err()
	case len(received) == 0:
		return source.Batch{}, fmt.Errorf("receive from queue %s: %w", s.cfg.Queue, <-s.closed)
	}
	batch := source.Batch{Messages: make([]source.Message, len(received)), Ack: func(context.Context) error {
		const andAllBefore = true
		return received[len(received)-1].Ack(andAllBefore)
	}}
	for i := range received {
		batch.Messages[i] = s.message(&received[i])
	}
	return batch, nil
}

func (s *Source) consume() (err error) {
	if s.conn, err = s.cfg.Dial(s.cfg.URL); err != nil {
		return fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	if s.channel, err = s.conn.Channel(); err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	if err = s.channel.Qos(s.cfg.Batch, 0, false); err != nil {
		return fmt.Errorf("limit messages: %w", err)
	}
	s.closed = s.channel.NotifyClose(make(chan *amqp.Error, 1))
	const autoAck, noLocal, noWait = false, false, false
	s.messages, err = s.channel.Consume(s.cfg.Queue, "", autoAck, !s.cfg.Shared, noLocal, noWait, nil)
	if err != nil {
		return fmt.Errorf("consume queue %s: %w", s.cfg.Queue, err)
	}
	return nil
}

func (s *Source) message(d *amqp.Delivery) source.Message {
	m := source.Message{Channel: s.cfg.Queue, Time: d.Timestamp, Body: d.Body}
	for name, value := range d.Headers {
		if text, is := value.(string); is {
			m.Header(name, text, false)
		}
	}
	if d.MessageId != "" && m.Attributes["id"] == "" {
		m.Place = s.cfg.Queue + "/" + d.MessageId
		m.Header("ce_id", d.MessageId, false)
	}
	return m
}
