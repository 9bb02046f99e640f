package stream

import (
	"encoding/binary"
	"encoding/json"
	"strconv"

	"github.com/google/uuid"
)

// Message is one event as readers get it. Its bytes are shared by all readers and must not be changed.
type Message struct {
	// Seq is its number: within its run from 1 without a gap, or for a topic a number that is as unique as its event id.
	Seq     int64
	Type    string
	Event   []byte // the CloudEvent
	Payload []byte // the CloudEvent's data
}

func (m *Message) size() int { return len(m.Event) + messageOverhead }

// messageOverhead is about what a message costs besides its bytes. Payload is a part of Event.
const messageOverhead = 96

// cloudEvent is what is read of a published CloudEvent.
type cloudEvent struct {
	ID           uuid.UUID       `json:"id"`
	Type         string          `json:"type"`
	Sequence     string          `json:"sequence"`
	PartitionKey string          `json:"partitionkey"`
	TenantID     string          `json:"tenantid"`
	Data         json.RawMessage `json:"data"`
}

// decodeRun reads what was published on a run's channel. What is no event of that run, or has no number (written by plain SQL, or published without an envelope), is
// not ok: it is a sign that the log has something new, and no more.
func decodeRun(payload []byte, run uuid.UUID) (m Message, ok bool) {
	var e cloudEvent
	if json.Unmarshal(payload, &e) != nil || e.PartitionKey != run.String() || e.Data == nil {
		return Message{}, false
	}
	seq, err := strconv.ParseInt(e.Sequence, 10, 64)
	if err != nil || seq < 1 {
		return Message{}, false
	}
	return Message{Seq: seq, Type: e.Type, Event: payload, Payload: e.Data}, true
}

// decodeTopic reads what was published on the channel of a topic. An event of another tenant, or of nobody knows which, is not ok.
func decodeTopic(payload []byte, tenant string) (m Message, ok bool) {
	var e cloudEvent
	if json.Unmarshal(payload, &e) != nil || e.TenantID != tenant || e.Data == nil {
		return Message{}, false
	}
	return Message{Seq: topicSeq(e.ID), Type: e.Type, Event: payload, Payload: e.Data}, true
}

// topicSeq makes a number of an event id, for which only equality means something: the halves of a UUIDv7 are the time and chance.
func topicSeq(id uuid.UUID) int64 {
	return int64((binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])) >> 1)
}
