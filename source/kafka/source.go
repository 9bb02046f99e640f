// Package kafka receives the records of Kafka's topics for package source, as a member of a
// consumer group.
//
// Guaranteed: offsets are committed after the rows. The records of a partition are written in their
// order, by any number of processes: a member that has lost a partition may still write what it
// holds of it, and the guard leaves out what another has written. Records of transactions that were
// aborted are not read.
//
// Not guaranteed: the order of a key whose records are in two partitions, such as after partitions
// were added.
package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/source"
)

// Config says what is received. Zero means the default in parentheses.
type Config struct {
	Brokers []string // host:port; required
	Group   string   // the consumer group; required
	Topics  []string // required
	Batch   int      // most records of a batch (500)
	// Options are the client's, such as TLS and SASL, an instance id, or where a new group begins
	// (the oldest record).
	Options []kgo.Opt
}

// Source is a source.Source.
type Source struct {
	client *kgo.Client
	batch  int
}

// New returns a source, which connects when it is asked for records. Close it after source.Run.
func New(cfg Config) (*Source, error) {
	if len(cfg.Brokers) == 0 || cfg.Group == "" || len(cfg.Topics) == 0 {
		return nil, errors.New("configure source: Brokers, Group and Topics are required")
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 500
	}
	options := append([]kgo.Opt{
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), // of a group that is new
		kgo.FetchMaxBytes(8 << 20),
	}, cfg.Options...)
	client, err := kgo.NewClient(append(options,
		kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumerGroup(cfg.Group), kgo.ConsumeTopics(cfg.Topics...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.AutoCommitMarks(),      // what Ack could not commit is committed later
		kgo.BlockRebalanceOnPoll(), // no partition is given away between the poll and its acknowledgement
	)...)
	if err != nil {
		return nil, fmt.Errorf("configure source: %w", err)
	}
	return &Source{client, cfg.Batch}, nil
}

// Close leaves the group.
func (s *Source) Close() { s.client.CloseAllowingRebalance() }

// Receive implements source.Source.
func (s *Source) Receive(ctx context.Context) (source.Batch, error) {
	for {
		s.client.AllowRebalance() // of a batch whose acknowledgement failed as well
		polled := s.client.PollRecords(ctx, s.batch)
		records := polled.Records()
		if len(records) == 0 {
			err := polled.Err()
			if err == nil {
				continue
			}
			if errors.Is(err, kgo.ErrClientClosed) {
				err = outbox.Permanent(err)
			}
			return source.Batch{}, fmt.Errorf("poll: %w", err)
		}
		messages := make([]source.Message, len(records))
		for i, r := range records {
			messages[i] = message(r)
		}
		return source.Batch{Messages: messages, Ack: func(ctx context.Context) error {
			s.client.MarkCommitRecords(records...)
			return s.client.CommitMarkedOffsets(ctx)
		}}, nil
	}
}

func message(r *kgo.Record) source.Message {
	m := source.Message{Place: fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset), Channel: r.Topic,
		Key: string(r.Key), Time: r.Timestamp, Body: r.Value}
	if r.Value == nil {
		m.Body = []byte("null") // a tombstone
	}
	for _, h := range r.Headers {
		m.Header(h.Key, string(h.Value), false)
	}
	return m
}
