// Package kafka publishes events to Apache Kafka: the destination is the topic, the key is the
// event's ordering key (AggregateID).
//
// # What is guaranteed
//
//   - A delivery that was answered without error was acknowledged by all in-sync replicas
//     (acks=all).
//   - While the sink lives, the client's own retries neither copy nor reorder: the producer is
//     idempotent, so a broker recognises a batch that it has, whatever became of its first answer.
//   - Deliveries of one key go to one partition of a topic, in the order of the batch, and none
//     after a failed event of its key. One call at a time has records for a partition in the
//     client, no more than fit one batch, and they fail from some record on: Kafka takes a batch as
//     a whole, and refuses what follows a refused one by its sequence number. What Kafka refuses is
//     sent again in halves, down to the record that is refused alone. Partitions go in parallel.
//   - A key whose events go to several partitions has one event in flight, or one partition.
//   - Names that Kafka forbids, messages that are too large and topics that are not there are
//     refused beforehand. Nothing else waits for a topic that is being looked for, or for a
//     partition without a leader.
//   - No password reaches an error.
//
// # What is not
//
//   - Copies are not refused: after a crash of the relay, a Publish that ends without an answer, or
//     a new client, events that Kafka took come again. Consumers recognise them by the event's id
//     (ce_id, or id in the message).
//   - A batch that was being sent when ctx ended may be published. It is answered as unavailable,
//     and what the same sink publishes to the partition afterwards has a higher epoch: the broker
//     refuses the old batch from then on. So such a copy comes before what follows it. Where
//     another process publishes the events instead, the old batch may come after them. A
//     transactional id rules that out.
//   - Order across a change of a topic's number of partitions: a key may move.
//
// An event without a key has no key in Kafka either, and goes to any partition. A compacted topic
// refuses it.
//
// # Transactions
//
// With a transactional id, each call of Publish is one transaction (several where Kafka refuses an
// event of it), and calls take turns. Consumers that read committed records see all of it or
// nothing. Whoever opens the id again, in this process or another, ends what the former had begun;
// the former is told so and leaves the id alone for 30 s. Each process needs an id of its own that
// a restart keeps, such as the name of the pod. A transaction whose end has no answer may have been
// committed: its events come again.
//
// # What it needs
//
// Kafka 0.11 or later, 2.5 for what is said above of a batch without an answer (KIP-360). The user
// may write to the topics (kafka-acls.sh --producer; before 2.8 with --idempotent), with a
// transactional id to that, and has Create for Config.Create. Tested with the client's own
// imitation of a broker (kfake) and not with Apache Kafka itself, unless OUTBOX_KAFKA_BROKERS names
// a cluster to the tests.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
)

// Config configures a Sink. Zero means the default in parentheses.
type Config struct {
	// Envelope builds the message (outbox.CloudEvent).
	Envelope outbox.Envelope
	// Binary sends CloudEvents in binary mode: attributes as headers (ce_…), the payload as the
	// value. The Envelope of the sink or a table does not matter then.
	Binary bool
	// Watermill sends what watermill-kafka's DefaultMarshaler reads: the payload as the value; the
	// event id, attributes (ce_…) and texts of the metadata as headers. The Envelope does not
	// matter then.
	Watermill bool
	// MaxMessageBytes is the largest batch, and so the largest message (1,000,012 bytes, which is
	// less than the max.message.bytes of a topic that nobody has changed). A larger message fails
	// for good, without being sent.
	MaxMessageBytes int
	// Create has topics made that are not there (nil: the event fails).
	Create *Creation
	// TransactionalID makes each call of Publish a transaction ("": none).
	TransactionalID string
	// Compression of batches: "gzip", "snappy", "lz4" or "zstd" ("none": every client reads it, as
	// it is the Java producer's default; kafkajs reads gzip beside it and needs a package for the
	// others). A kgo.ProducerBatchCompression among the options of New wins.
	Compression string
	// TLS is what brokers are connected to with (nil: none; Open of a kafkas:// URL: the system's
	// authorities).
	TLS *tls.Config
	// Dial connects (net.Dialer). kgo.Dialer and kgo.DialTLSConfig among the options of New are not
	// used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Creation is how a topic is made.
type Creation struct {
	Partitions  int
	Replication int // copies of each partition
}

// defaultMaxMessageBytes is what the client takes for one batch by default. The broker's default is
// 1,048,588.
const defaultMaxMessageBytes = 1_000_012

// minMaxMessageBytes leaves room for the attributes of an event.
const minMaxMessageBytes = 4 << 10

// maxTransactionalID is what the client takes in one request.
const maxTransactionalID = 16_382

func (c Config) withDefaults() (Config, error) {
	var problems []error
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = defaultMaxMessageBytes
	}
	if c.MaxMessageBytes < minMaxMessageBytes || c.MaxMessageBytes > 64<<20 {
		problems = append(problems,
			fmt.Errorf("MaxMessageBytes is %d, must be between %d and %d", c.MaxMessageBytes, minMaxMessageBytes, 64<<20))
	}
	if c.Create != nil && (c.Create.Partitions < 1 || c.Create.Partitions > math.MaxInt32) {
		problems = append(problems, fmt.Errorf("Create.Partitions is %d, must be positive", c.Create.Partitions))
	}
	if c.Create != nil && (c.Create.Replication < 1 || c.Create.Replication > math.MaxInt16) {
		problems = append(problems, fmt.Errorf("Create.Replication is %d, must be positive", c.Create.Replication))
	}
	if _, err := codec(c.Compression); err != nil {
		problems = append(problems, err)
	}
	if len(c.TransactionalID) > maxTransactionalID {
		problems = append(problems, fmt.Errorf("TransactionalID has %d bytes, at most %d", len(c.TransactionalID),
			maxTransactionalID))
	}
	return c, errors.Join(problems...)
}

// codec returns the codec of a name in Config.Compression.
func codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "", "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, errors.New("Compression must be none, gzip, snappy, lz4 or zstd")
}

// Sink is an outbox.Sink that publishes to Kafka topics. It is safe for concurrent use.
type Sink struct {
	cfg      Config
	options  []kgo.Opt
	password string

	mu      sync.Mutex
	session *session

	transacting transacting
	working     sync.WaitGroup // what Publish may have stopped waiting for
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a Sink with a client of its own, made with the options, such as kgo.SeedBrokers. It
// does not connect. All problems of cfg are reported at once.
//
// It takes no client, because the order of a key depends on the client's settings, and on nobody
// else producing with it. What decides that (acks, idempotence, partitioner, linger, bounds of
// buffers, dialer) the Sink sets, whatever the options say.
func New(cfg Config, options ...kgo.Opt) (*Sink, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure Kafka sink: %w", err)
	}
	s := &Sink{cfg: cfg, options: options, transacting: transacting{turn: make(chan struct{}, 1)}}
	if s.session, err = newSession(cfg, options); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Sink) current() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// renew replaces a session whose client was refused for good. It stays if no other can be made.
func (s *Sink) renew(old *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != old {
		return
	}
	next, err := newSession(s.cfg, s.options)
	if err != nil {
		return // the options were good before
	}
	s.session = next
	s.working.Go(old.client.Close)
}

// Abilities implements outbox.Able.
func (s *Sink) Abilities() outbox.Abilities {
	return outbox.Abilities{Ping: s.ping, TakesCopies: true}
}

// ping asks a broker whether it answers. Errors are of class outbox.ClassUnavailable.
func (s *Sink) ping(ctx context.Context) error {
	if err := s.current().client.Ping(ctx); err != nil {
		return outbox.Unavailable(fmt.Errorf("ping Kafka: %w", s.hide(err)))
	}
	return nil
}

// Close closes the client and waits for what Publish gave up on. Call it after the last Publish has
// returned.
func (s *Sink) Close() error {
	s.current().client.Close()
	s.working.Wait()
	return nil
}
