// Package natsjs receives the messages of a stream of NATS JetStream for package source, by a durable consumer.
//
// Guaranteed: a message is acknowledged, and the server has confirmed it, after its row. With a Batch of 1 the messages
// of a consumer are written in their order, by any number of processes: the server hands out one at a time, whatever
// becomes of who has it. Each is a transaction then.
//
// Let the stream's subject transform spread keys over subjects, by {{partition(32,1)}}, and name them as Partitions: a
// transaction has a message of each.
//
// Not guaranteed: that order with a larger Batch. It is kept while one process receives and nothing fails. The server
// hands out what is new before what was lost with a process or a connection.
package natsjs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/source"
)

// Config says what is received. Zero means the default in parentheses.
type Config struct {
	Stream   string   // required
	Durable  string   // the name of the consumer, which is made or changed; required
	Subjects []string // those of the stream that are received (all)
	// Partitions are subjects with keys of their own, such as order.0.* to order.31.*, instead of Subjects. Each has a
	// consumer: Durable with -0, -1 and so on.
	Partitions []string
	Batch      int // most messages of a batch, of each consumer (1)
	// AckWait is after which time a message comes again that was not acknowledged (30 s).
	AckWait time.Duration
}

// Source is a source.Source.
type Source struct {
	idle    []*consumer  // that nothing is asked of
	answers chan fetched // has room for one of each consumer
	failed  error        // of a consumer, while others had messages
}

// New returns a source on a connection of the caller's, which should reconnect for ever (nats.MaxReconnects(-1)).
func New(js jetstream.JetStream, cfg Config) (*Source, error) {
	switch {
	case cfg.Stream == "" || cfg.Durable == "":
		return nil, errors.New("configure source: Stream and Durable are required")
	case len(cfg.Subjects) > 0 && len(cfg.Partitions) > 0:
		return nil, errors.New("configure source: Partitions of a stream are named instead of Subjects: set one of both")
	}
	of := jetstream.ConsumerConfig{Durable: cfg.Durable, FilterSubjects: cfg.Subjects, AckWait: cfg.AckWait,
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: max(cfg.Batch, 1)}
	if of.AckWait <= 0 {
		of.AckWait = 30 * time.Second
	}
	s := &Source{answers: make(chan fetched, max(len(cfg.Partitions), 1))}
	for i, subject := range cfg.Partitions {
		of.Durable, of.FilterSubjects = fmt.Sprintf("%s-%d", cfg.Durable, i), []string{subject}
		s.idle = append(s.idle, &consumer{js: js, stream: cfg.Stream, cfg: of})
	}
	if len(s.idle) == 0 {
		s.idle = []*consumer{{js: js, stream: cfg.Stream, cfg: of}}
	}
	return s, nil
}

// Receive implements source.Source. The batch is what the consumers have soon; the others are waited for behind it.
func (s *Source) Receive(ctx context.Context) (source.Batch, error) {
	var received []jetstream.Msg
	for len(received) == 0 {
		if err := cmp.Or(s.failed, ctx.Err()); err != nil {
			s.failed = nil
			return source.Batch{}, err
		}
		for _, c := range s.idle {
			go func() { s.answers <- c.fetch(ctx) }() // ends when wait is over
		}
		s.idle = nil
		for _, f := range source.Gather(ctx, s.answers, cap(s.answers)) {
			s.idle, received = append(s.idle, f.of), append(received, f.messages...)
			s.failed = errors.Join(s.failed, f.err)
		}
	}
	messages := make([]source.Message, len(received))
	for i, m := range received {
		var err error
		if messages[i], err = message(m); err != nil {
			return source.Batch{}, outbox.Permanent(err)
		}
	}
	return source.Batch{Messages: messages, Ack: func(ctx context.Context) error {
		var acks errgroup.Group
		for _, m := range received {
			acks.Go(func() error { return m.DoubleAck(ctx) }) // Ack alone may get lost
		}
		return acks.Wait()
	}}, nil
}

// consumer is one of the server's.
type consumer struct {
	js     jetstream.JetStream
	stream string
	cfg    jetstream.ConsumerConfig
	made   jetstream.Consumer // nil: to be made
}

// fetched is what a consumer had.
type fetched struct {
	of       *consumer
	messages []jetstream.Msg
	err      error
}

// wait is how long a request for messages waits at the server.
const wait = 2 * time.Second

// fetch asks for messages until it gets a batch of them. It is empty at the end of ctx.
func (c *consumer) fetch(ctx context.Context) fetched {
	for ctx.Err() == nil {
		received, err := c.once(ctx)
		if len(received) > 0 || err != nil && ctx.Err() == nil {
			return fetched{c, received, err}
		}
	}
	return fetched{of: c}
}

func (c *consumer) once(ctx context.Context) (received []jetstream.Msg, err error) {
	if c.made == nil {
		if c.made, err = c.js.CreateOrUpdateConsumer(ctx, c.stream, c.cfg); err != nil {
			return nil, fmt.Errorf("make consumer %s: %w", c.cfg.Durable, err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	batch, err := c.made.Fetch(c.cfg.MaxAckPending, jetstream.FetchContext(limited))
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	for m := range batch.Messages() {
		received = append(received, m)
	}
	if err := batch.Error(); err != nil && len(received) == 0 && !errors.Is(err, context.DeadlineExceeded) {
		c.made = nil // it may have been deleted
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
