package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// clientID is what brokers show of the client, unless the options of New say otherwise.
const clientID = "outbox"

const (
	dialTimeout = 3 * time.Second
	// The client waits for this long between two looks at who leads a partition. Its own default is
	// the whole time that a relay has for a batch.
	metadataEvery = 250 * time.Millisecond
	// A broker may not have heard yet of a topic that others have told of.
	unknownTopicRetries = 2
	createdEvery        = 50 * time.Millisecond
)

// session is a client, with what is known of the topics through it. A client whose producer id was
// refused for good stays so; another takes its place.
type session struct {
	client        *kgo.Client
	gate          gate
	transactional bool
	// Held to forget a topic, shared to append: the client would fail a chunk's first records and
	// take the others.
	forgetting sync.RWMutex

	mu     sync.Mutex
	topics map[string]*topic
}

// topic is one that somebody published to.
type topic struct {
	name string
	// count of its partitions as the client knows it; 0 until it does. It changes while the client
	// runs.
	count atomic.Int32
	limit atomic.Int64  // bytes of a batch: less than the client's where the topic has refused so many
	next  atomic.Uint32 // where events without a key go

	mu         sync.Mutex
	partitions []*partition
}

// partition has one round's records at a time. What it then has fails together, see gate.
type partition struct {
	*topic
	number int32
	turn   chan struct{} // of one: held by the chunk that is in the client
}

func newSession(cfg Config, options []kgo.Opt) (*session, error) {
	n := &session{topics: map[string]*topic{}, transactional: cfg.TransactionalID != ""}
	own := []kgo.Opt{
		kgo.Dialer(n.gate.dialer(cfg)),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(n.partitioner)),
		kgo.ProducerBatchMaxBytes(int32(cfg.MaxMessageBytes)),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(1 << 30), // it must not wait behind a closed gate; batches of relays are bounded
		kgo.UnknownTopicRetries(unknownTopicRetries),
		kgo.MetadataMinAge(metadataEvery),
	}
	if n.transactional {
		own = append(own, kgo.TransactionalID(cfg.TransactionalID))
	} else {
		own = append(own, kgo.AllowIdempotentProduceCancellation())
	}
	compression, err := codec(cfg.Compression)
	if err != nil {
		return nil, fmt.Errorf("configure Kafka client: %w", err)
	}
	defaults := []kgo.Opt{kgo.ClientID(clientID), kgo.ProducerBatchCompression(compression)}
	client, err := kgo.NewClient(slices.Concat(defaults, options, own)...)
	if err != nil {
		return nil, fmt.Errorf("configure Kafka client: %w", err)
	}
	n.client = client
	return n, nil
}

// partitioner is told by the client how many partitions a topic has. The record says which it is
// for.
func (n *session) partitioner(name string) func(*kgo.Record, int) int {
	t := n.topic(name)
	return func(r *kgo.Record, count int) int {
		t.count.Store(int32(count))
		if int(r.Partition) >= count {
			return -1 // the topic was made anew: the client fails the record
		}
		return int(r.Partition)
	}
}

func (n *session) topic(name string) *topic {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.topics[name]
	if t == nil {
		t = &topic{name: name}
		n.topics[name] = t
	}
	return t
}

func (t *topic) partition(number int) *partition {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.partitions) <= number {
		t.partitions = append(t.partitions,
			&partition{topic: t, number: int32(len(t.partitions)), turn: make(chan struct{}, 1)})
	}
	return t.partitions[number]
}

// forget has a topic looked up again: it may be gone, or another of its name be there.
func (n *session) forget(t *topic) {
	n.forgetting.Lock() // and not the gate: the client may have to write before it forgets
	defer n.forgetting.Unlock()
	n.client.PurgeTopicsFromProducing(t.name)
	t.count.Store(0) // only now: until then the client may have told it again
	t.limit.Store(0)
}

// discover learns the partitions of topics, and returns what is wrong with those that cannot be
// published to.
func (n *session) discover(ctx context.Context, topics []*topic, create *Creation) map[*topic]error {
	failures := map[*topic]error{}
	var found []*topic
	codes, err := n.ask(ctx, topics)
	for _, t := range topics {
		problem := err
		if err == nil {
			problem = codes[t.name]
		}
		if errors.Is(problem, kerr.UnknownTopicOrPartition) && create != nil {
			problem = n.create(ctx, t, *create)
		}
		if problem != nil {
			failures[t] = topicError(t.name, problem)
			continue
		}
		found = append(found, t)
	}
	if n.transactional { // the client takes no record outside of a transaction, and what is in one needs no gate
		return failures
	}
	for t, err := range n.load(ctx, found) {
		failures[t] = topicError(t.name, err)
	}
	return failures
}

// ask returns what the cluster says of each topic. For transactions it notes the partitions.
func (n *session) ask(ctx context.Context, topics []*topic) (map[string]error, error) {
	request := kmsg.NewPtrMetadataRequest()
	for _, t := range topics {
		named := kmsg.NewMetadataRequestTopic()
		named.Topic = kmsg.StringPtr(t.name)
		request.Topics = append(request.Topics, named)
	}
	request.AllowAutoTopicCreation = false
	answer, err := request.RequestWith(ctx, n.client)
	if err != nil {
		return nil, err
	}
	codes := map[string]error{}
	for _, t := range topics {
		codes[t.name] = kerr.UnknownTopicOrPartition
	}
	for _, t := range answer.Topics {
		if t.Topic != nil {
			codes[*t.Topic] = kerr.ErrorForCode(t.ErrorCode)
			if n.transactional && t.ErrorCode == 0 {
				n.topic(*t.Topic).count.Store(int32(len(t.Partitions)))
			}
		}
	}
	return codes, nil
}

// load has the client learn the partitions of topics that are there. A record for a partition that
// cannot be makes it do so, and is never sent.
func (n *session) load(ctx context.Context, topics []*topic) map[*topic]error {
	failures := map[*topic]error{}
	type outcome struct {
		*topic
		err error
	}
	outcomes := make(chan outcome, len(topics))
	for _, t := range topics {
		n.client.TryProduce(ctx, &kgo.Record{Topic: t.name, Partition: -1}, func(_ *kgo.Record, err error) {
			outcomes <- outcome{t, err}
		})
	}
	for range topics {
		select {
		case o := <-outcomes:
			if o.count.Load() == 0 {
				failures[o.topic] = o.err
			}
		case <-ctx.Done():
			for _, t := range topics {
				if t.count.Load() == 0 {
					failures[t] = ctx.Err()
				}
			}
			return failures
		}
	}
	return failures
}

// create makes a topic and waits until the cluster tells of it.
func (n *session) create(ctx context.Context, t *topic, c Creation) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = t.name, int32(c.Partitions), int16(c.Replication)
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(ctx, n.client)
	if err != nil {
		return err
	}
	for _, made := range answer.Topics {
		err := kerr.ErrorForCode(made.ErrorCode)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			if made.ErrorMessage != nil {
				err = fmt.Errorf("%w (%s)", err, *made.ErrorMessage)
			}
			return &creationError{c, err}
		}
	}
	for {
		codes, err := n.ask(ctx, []*topic{t})
		if err != nil {
			return err
		}
		if err := codes[t.name]; err == nil || !kerr.IsRetriable(err) {
			return err
		}
		if !backoff.Wait(ctx, createdEvery) {
			return ctx.Err()
		}
	}
}

// creationError is the cluster's refusal to create a topic.
type creationError struct {
	Creation
	err error
}

func (e *creationError) Error() string {
	return fmt.Sprintf("create with %d partitions, %d times: %v", e.Partitions, e.Replication, e.err)
}

func (e *creationError) Unwrap() error { return e.err }

// topicError says what a topic lacks and how it is cured. It is the events' own failure where
// others may be well.
func topicError(name string, err error) error {
	var creation *creationError
	switch {
	case errors.As(err, &creation):
		return fmt.Errorf("topic %s: %w", name, err)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("topic %s does not exist: create it (kafka-topics.sh --create --topic %s --partitions N "+
			"--replication-factor N), or have it created (create=partitions:replication in the sink's URL): %w", name, name, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("topic %s: the user may not write to it; give it the right (kafka-acls.sh --add --producer "+
			"--topic %s --allow-principal User:NAME): %w", name, name, err)
	case errors.Is(err, kerr.InvalidTopicException):
		return outbox.Permanent(fmt.Errorf("topic %s: the cluster takes no such name: %w", name, err))
	}
	return outbox.Unavailable(fmt.Errorf("look up topic %s: %w", name, err))
}
