package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/cloudevent"
)

// attributePrefix begins the names of headers that are attributes (CloudEvents 1.0, Kafka protocol
// binding, section 3.2). Values are UTF-8 as they are.
const attributePrefix = "ce_"

// maxTopic is the longest name of a topic (org.apache.kafka.common.internals.Topic).
const maxTopic = 249

// Bytes that a record and a batch take beside keys, values and headers, at most: lengths are
// numbers of up to 5 bytes (Kafka protocol guide, "Record Batch").
const (
	batchOverhead  = 80
	recordOverhead = 40
	headerOverhead = 10
)

// checkTopic says what is wrong with the name of a topic.
func checkTopic(name string) error {
	switch {
	case name == "", name == ".", name == "..":
		return fmt.Errorf("%q cannot be the name of a topic", name)
	case len(name) > maxTopic:
		return fmt.Errorf("the name of the topic has %d bytes, Kafka takes %d", len(name), maxTopic)
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("%.300q cannot be the name of a topic: it has other characters than a-z A-Z 0-9 . _ -", name)
		}
	}
	return nil
}

// record returns what is sent for a delivery. Its time is that of publishing, which the client
// sets: by the time of the event a topic with a retention would drop what comes late.
func (s *Sink) record(d *outbox.Delivery) (*kgo.Record, error) {
	if err := checkTopic(d.Destination); err != nil {
		return nil, err
	}
	r := &kgo.Record{Topic: d.Destination}
	if d.Keyed && d.AggregateID != "" {
		r.Key = []byte(d.AggregateID)
	}
	form := cloudevent.Form{Envelope: s.cfg.Envelope, Binary: s.cfg.Binary, Prefix: attributePrefix,
		Watermill: s.cfg.Watermill}
	value := make([]byte, 0, len(d.Payload)+512) // never nil, which would be a tombstone
	r.Value = form.Message(value, d, func(name, value string) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	})
	if size := sizeOf(r) + batchOverhead; size > s.cfg.MaxMessageBytes {
		return nil, fmt.Errorf("%w: %d bytes, the sink sends %d at most (max_message_bytes)", errTooLarge, size,
			s.cfg.MaxMessageBytes)
	}
	return r, nil
}

var errTooLarge = errors.New("the message is too large")

// sizeOf is at least what a record takes in a batch.
func sizeOf(r *kgo.Record) int {
	size := recordOverhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += headerOverhead + len(h.Key) + len(h.Value)
	}
	return size
}

// placing chooses partitions as Kafka's own client does for records with a key (murmur2), so that
// other producers of a topic agree. It is for one goroutine.
type placing struct{ byKey kgo.TopicPartitioner }

func newPlacing() placing { return placing{kgo.StickyKeyPartitioner(nil).ForTopic("")} }

// partition returns the partition of a keyed delivery, of n.
func (p placing) partition(d *outbox.Delivery, r *kgo.Record, n int) int {
	if r.Key != nil {
		return p.byKey.Partition(r, n)
	}
	key := binary.BigEndian.AppendUint64(nil, uint64(d.OrderKey))
	return p.byKey.Partition(&kgo.Record{Key: key}, n)
}
