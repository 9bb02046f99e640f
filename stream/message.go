package stream

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Message is one event as readers get it. Its bytes are shared by all readers and must not be changed.
type Message struct {
	// Seq is its number: within its run from 1 without a gap, or within a topic as this process has counted.
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
	Type         string          `json:"type"`
	Sequence     string          `json:"sequence"`
	PartitionKey string          `json:"partitionkey"`
	TenantID     string          `json:"tenantid"`
	Data         json.RawMessage `json:"data"`
}

// decodeRun reads what was published on a run's channel. What is no event of that run, or has no number (written by plain SQL, or published without an envelope), is
// not ok: it is a sign that the log has something new, and no more.
func decodeRun(published []byte, s Source) (m Message, ok bool) {
	var e cloudEvent
	if json.Unmarshal(published, &e) != nil || e.PartitionKey != s.Run.String() || e.TenantID != s.Tenant || e.Data == nil {
		return Message{}, false
	}
	seq, err := strconv.ParseInt(e.Sequence, 10, 64)
	if err != nil || seq < 1 {
		return Message{}, false
	}
	return Message{Seq: seq, Type: e.Type, Event: published, Payload: e.within(published)}, true
}

// decodeTopic reads what was published on the channel of a topic. An event of another tenant, or of nobody knows which, is not ok.
func decodeTopic(published []byte, tenant string) (m Message, ok bool) {
	var e cloudEvent
	if json.Unmarshal(published, &e) != nil || e.TenantID != tenant || e.Data == nil {
		return Message{}, false
	}
	return Message{Type: e.Type, Event: published, Payload: e.within(published)}, true
}

// within returns the data as a part of the event's bytes, where outbox.CloudEvent puts it, so that it is not kept twice.
func (e *cloudEvent) within(published []byte) []byte {
	end := len(published) - 1
	if begin := end - len(e.Data); begin >= 0 && bytes.Equal(published[begin:end], e.Data) {
		return published[begin:end]
	}
	return e.Data
}
