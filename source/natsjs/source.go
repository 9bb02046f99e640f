// Package natsjs receives the messages of a stream of NATS JetStream for package source, by a durable consumer.
//
// Guaranteed: a message is acknowledged, and the server has confirmed it, after its row. With a Batch of 1 the messages
// of the consumer are written in their order, by any number of processes: the server hands out one at a time, whatever
// becomes of who has it.
//
// A message is a transaction. To have several processes at it let the stream's subject transform spread keys over
// subjects, by {{partition(8,1)}}, and have a source for each, with a Durable and a name of its own.
//
// Not guaranteed: that order with a larger Batch. It is kept while one process receives and nothing fails. The server
// hands out what is new before what was lost with a process or a connection.
package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/source"
)

// Config says what is received. Zero means the default in parentheses.
type Config struct {
	Stream   string   // required
	Durable  string   // the name of the consumer, which is made or changed; required
	Subjects []string // those of the stream that are received (all)
	Batch    int      // most messages of a batch (1)
	// AckWait is after which time a message comes again that was not acknowledged (30 s).
	AckWait time.Duration
}

// Source is a source.Source.
type Source struct {
	js       jetstream.JetStream
	cfg      Config
	consumer jetstream.Consumer // nil: to be made
}

// New returns a source on a connection of the caller's, which should reconnect for ever (nats.MaxReconnects(-1)).
func New(js jetstream.JetStream, cfg Config) (*Source, error) {
	if cfg.Stream == "" || cfg.Durable == "" {
		return nil, errors.New("configure source: Stream and Durable are required")
	}
	cfg.Batch = max(cfg.Batch, 1)
	if cfg.AckWait <= 0 {
		cfg.AckWait = 30 * time.Second
	}
	return &Source{js: js, cfg: cfg}, nil
}

// wait is how long a request for messages waits at the server.
const wait = 2 * time.Second

// Receive implements source.Source.
func (s *Source) Receive(ctx context.Context) (source.Batch, error) {
	for ctx.Err() == nil {
		received, err := s.fetch(ctx)
		if err != nil {
			return source.Batch{}, err
		}
		if len(received) == 0 {
			continue
		}
		messages := make([]source.Message, len(received))
		for i, m := range received {
			if messages[i], err = message(m); err != nil {
				return source.Batch{}, outbox.Permanent(err)
			}
		}
		return source.Batch{Messages: messages, Ack: func(ctx context.Context) (err error) {
			for _, m := range received {
				err = errors.Join(err, m.DoubleAck(ctx)) // Ack alone may get lost
			}
			return err
		}}, nil
	}
	return source.Batch{}, ctx.Err()
}

func (s *Source) fetch(ctx context.Context) (received []jetstream.Msg, err error) {
	if s.consumer == nil {
		s.consumer, err = s.js.CreateOrUpdateConsumer(ctx, s.cfg.Stream, jetstream.ConsumerConfig{Durable: s.cfg.Durable,
			FilterSubjects: s.cfg.Subjects, AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.cfg.AckWait,
			MaxAckPending: s.cfg.Batch})
		if err != nil {
			return nil, fmt.Errorf("make consumer %s: %w", s.cfg.Durable, err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	fetched, err := s.consumer.Fetch(s.cfg.Batch, jetstream.FetchContext(limited))
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	for m := range fetched.Messages() {
		received = append(received, m)
	}
	if err := fetched.Error(); err != nil && len(received) == 0 && !errors.Is(err, context.DeadlineExceeded) {
		s.consumer = nil // it may have been deleted
		return nil, fmt.Errorf("fetch: %w", err)
	}
	return received, nil
}

func message(jm jetstream.Msg) (source.Message, error) {
	meta, err := jm.Metadata()
	if err != nil {
		return source.Message{}, fmt.Errorf("read the place of a message: %w", err)
	}
	m := source.Message{Place: fmt.Sprintf("%s/%d", meta.Stream, meta.Sequence.Stream), Channel: jm.Subject(),
		Time: meta.Timestamp, Body: jm.Data()}
	for name, values := range jm.Headers() {
		m.Header(strings.ToLower(name), values[0], true)
	}
	return m, nil
}
