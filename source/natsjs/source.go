// Package natsjs receives the messages of a stream of NATS JetStream for package source, by a
// durable consumer.
//
// Guaranteed: a message is acknowledged, and the server has confirmed it, after its row. With a
// Batch of 1 the messages of a consumer are written in their order, by any number of processes: the
// server hands out one at a time, whatever becomes of who has it. Each is a transaction then.
//
// Let the stream's subject transform spread keys over subjects, by {{partition(64,1)}}, and name
// them as Partitions: a transaction has a message of each.
//
// Not guaranteed: that order with a larger Batch. It is kept while one process receives and nothing
// fails. The server hands out what is new before what was lost with a process or a connection.
package natsjs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	// Partitions are subjects with keys of their own, such as order.0.* to order.63.*, instead of
	// Subjects. Each has a consumer: Durable with -0, -1 and so on.
	Partitions []string
	Batch      int // most messages of a batch, of each consumer (1)
	// AckWait is after which time a message comes again that was not acknowledged (30 s).
	AckWait time.Duration
}

// Source is a source.Source.
type Source struct {
	consumers []*consumer
	idle      []*consumer     // that receive nothing: at first, and after an error
	within    context.Context // the others receive until it ends
	receiving sync.WaitGroup  // the others
	received  chan received   // has room for what the server hands out before it is acknowledged
	held      []jetstream.Msg // the batch, until it is acknowledged
	failed    error           // of a consumer, while others had messages
}

// New returns a source on a connection of the caller's, which should reconnect for ever
// (nats.MaxReconnects(-1)). Close it after source.Run, before the connection.
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
	s := &Source{}
	for i := range max(len(cfg.Partitions), 1) {
		if len(cfg.Partitions) > 0 {
			of.Durable, of.FilterSubjects = fmt.Sprintf("%s-%d", cfg.Durable, i), cfg.Partitions[i:i+1]
		}
		s.consumers = append(s.consumers, &consumer{js: js, stream: cfg.Stream, cfg: of})
	}
	s.received = make(chan received, len(s.consumers)*of.MaxAckPending)
	return s, nil
}

// Receive implements source.Source. The batch is what the consumers have soon.
func (s *Source) Receive(ctx context.Context) (source.Batch, error) {
	if s.within == nil || s.within.Err() != nil {
		s.within, s.idle = ctx, s.consumers
	}
	var batch []source.Message
	for s.held = nil; len(batch) == 0; {
		if err := cmp.Or(s.failed, ctx.Err()); err != nil {
			s.failed = nil
			return source.Batch{}, err
		}
		for _, c := range s.idle {
			s.receiving.Go(func() { c.receive(s.within, s.received) })
		}
		s.idle = nil
		for _, r := range source.Gather(ctx, s.received, cap(s.received)) {
			if r.err != nil {
				s.idle, s.failed = append(s.idle, r.by), r.err
				continue
			}
			s.held = append(s.held, r.message)
			m, err := message(r.message)
			if err != nil {
				return source.Batch{}, outbox.Permanent(err)
			}
			batch = append(batch, m)
		}
	}
	return source.Batch{Messages: batch, Ack: func(ctx context.Context) error {
		var all errgroup.Group
		for _, m := range s.held {
			all.Go(func() error { return m.DoubleAck(ctx) }) // Ack alone may get lost
		}
		s.held = nil
		return all.Wait()
	}}, nil
}

// Close gives what was received and not written to others at once, who get it after AckWait
// otherwise. It waits for the end of the context that Receive had.
func (s *Source) Close() {
	s.receiving.Wait()
	for len(s.received) > 0 { // nobody else takes from it
		if r := <-s.received; r.err == nil {
			s.held = append(s.held, r.message)
		}
	}
	for _, m := range s.held {
		_ = m.Nak() // one that is lost comes after AckWait
	}
	s.held = nil
}

// consumer is one of the server's.
type consumer struct {
	js     jetstream.JetStream
	stream string
	cfg    jetstream.ConsumerConfig
}

// received is a message, or why a consumer receives nothing more.
type received struct {
	by      *consumer
	message jetstream.Msg
	err     error
}

// asked is how many messages a request to the server is for, at least. It bounds the copies of one
// message that wait here while the database is away.
const asked = 10

const heartbeat = 5 * time.Second // of the server, while it has no message

// receive makes the consumer, and has messages come until ctx ends or it fails: it may have been
// deleted.
func (c *consumer) receive(ctx context.Context, to chan<- received) {
	put := func(r received) {
		select {
		case to <- r: // there is room unless AckWait has passed
			return
		default:
		}
		select {
		case to <- r:
		case <-ctx.Done():
		}
	}
	asking, stop := context.WithCancel(ctx)
	var once sync.Once
	fail := func(err error) {
		once.Do(func() {
			stop()
			put(received{by: c, err: fmt.Errorf("receive by consumer %s: %w", c.cfg.Durable, err)})
		})
	}
	var consuming jetstream.ConsumeContext
	made, err := c.js.CreateOrUpdateConsumer(ctx, c.stream, c.cfg)
	if err == nil {
		consuming, err = made.Consume(func(m jetstream.Msg) { put(received{by: c, message: m}) },
			jetstream.PullMaxMessages(max(asked, c.cfg.MaxAckPending)), jetstream.PullHeartbeat(heartbeat),
			jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { fail(err) }))
	}
	if err != nil {
		fail(err)
		return
	}
	<-asking.Done()
	consuming.Stop()
	<-consuming.Closed()
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
