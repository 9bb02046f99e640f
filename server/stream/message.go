package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Message is one event as readers get it. Its bytes are shared by all readers and must not be
// changed.
type Message struct {
	// Seq is its number: within its run from 1 without a gap, or within a topic as this process has
	// counted.
	Seq     int64
	Type    string
	Event   []byte // the CloudEvent
	Payload []byte // the CloudEvent's data
}

func (m *Message) size() int { return len(m.Event) + messageOverhead }

// messageOverhead is about what a message costs besides its bytes. Payload is a part of Event.
const messageOverhead = 96

// sequence reads the number of what was published on a run's channel. It says which event of the
// log to look for, and is never shown, so it is believed of anybody. What was written by plain SQL,
// or published without an envelope, has none.
func sequence(published []byte) (seq int64, ok bool) {
	members, err := decode(published)
	if err != nil {
		return 0, false
	}
	seq, err = strconv.ParseInt(members.text("sequence"), 10, 64)
	return seq, err == nil && seq >= 1
}

// decodeTopic reads what was published on the channel of a topic. An event of another tenant, or of
// nobody knows which, is not ok.
func decodeTopic(published []byte, tenant string) (m Message, ok bool) {
	members, err := decode(published)
	if err != nil || members.text("tenantid") != tenant || members["data"] == nil {
		return Message{}, false
	}
	return Message{Type: members.text("type"), Event: published, Payload: within(published, members["data"])}, true
}

// members are those of a CloudEvent, by their exact names.
type members map[string]json.RawMessage

// text returns a member that is a string, "" if it is none.
func (m members) text(name string) (s string) {
	if json.Unmarshal(m[name], &s) != nil {
		return ""
	}
	return s
}

var (
	errNoObject = errors.New("read message: it is no JSON object, alone")
	errName     = errors.New("read message: a member is there twice, or has a capital, which no CloudEvent has")
)

// decode takes an object literally. To encoding/json TenantID is tenantid, and the last of two
// members wins: a message could name one tenant to this gateway and another to its readers.
func decode(published []byte) (members, error) {
	d := json.NewDecoder(bytes.NewReader(published))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, errNoObject
	}
	m := make(members, 16)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		text, _ := name.(string) // within an object the decoder gives a name here
		if _, twice := m[text]; twice || text != strings.ToLower(text) {
			return nil, errName
		}
		m[text] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errNoObject
	}
	return m, nil
}

// within returns the data as a part of the event's bytes, where outbox.CloudEvent puts it, so that
// it is not kept twice.
func within(published, data []byte) []byte {
	end := len(published) - 1
	if begin := end - len(data); begin >= 0 && bytes.Equal(published[begin:end], data) {
		return published[begin:end]
	}
	return data
}
