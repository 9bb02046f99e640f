package source

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Message is what a broker has, before it is an event.
type Message struct {
	// Place says where it is, such as orders/3/1042: the same whenever it comes, and no other
	// message's. "": the broker has no such place.
	Place string
	// Channel is its topic, subject, queue or stream.
	Channel string
	Key     string    // the broker's, "" for none
	Time    time.Time // the broker's
	Body    []byte
	// Attributes are those of a CloudEvent in binary mode, without a prefix, and the trace context.
	// An id alone is the message's.
	Attributes map[string]string
	// Problem says why there is no body to read, "" where there is one.
	Problem string
}

// prefixes of headers that are attributes: Kafka's, Redis's and Watermill's; NATS's and HTTP's;
// AMQP's.
var prefixes = []string{"ce_", "ce-", "cloudEvents_", "cloudEvents:"}

// Header takes a header as an attribute, if it is one. NATS and HTTP have them percent-encoded.
func (m *Message) Header(name, value string, encoded bool) {
	if m.Attributes == nil {
		m.Attributes = map[string]string{}
	}
	if decoded, err := url.PathUnescape(value); err == nil && encoded {
		value = decoded
	}
	if name == "traceparent" || name == "tracestate" {
		m.Attributes[name] = value
	}
	for _, prefix := range prefixes {
		if attribute, is := strings.CutPrefix(name, prefix); is {
			m.Attributes[attribute] = value
		}
	}
}

// Names in the metadata of an event that was made of a message that could be none.
const (
	Unreadable = "unreadable" // why
	Place      = "place"      // where the message is
)

// How many characters the fields of an outbox.Event may have.
const (
	maxTopic  = 150
	maxKey    = 128
	maxSource = 50
)

// event reads a message. What it returns may still be none that a table takes: unreadable is made
// then.
func (m *Message) event(cfg *Config) outbox.Event {
	e := outbox.Event{Topic: cmp.Or(cfg.Type, fit(m.Channel, maxTopic)), OccurredAt: m.Time, AggregateID: m.Key,
		Payload: m.Body}
	attributes, id := m.structured(), ""
	if attributes != nil {
		e.Payload = attributes["data"]
		if e.Payload == nil {
			e.Payload = json.RawMessage("null")
		}
		delete(attributes, "data")
	} else {
		attributes = map[string]json.RawMessage{}
		for name, value := range m.Attributes {
			attributes[name], _ = json.Marshal(value) // a string always marshals
		}
	}
	take := func(name string) (value string) {
		if json.Unmarshal(attributes[name], &value) != nil {
			value = string(attributes[name]) // a number
		}
		delete(attributes, name)
		return value
	}
	cloud := take("specversion") != ""
	if id = take("id"); cloud {
		e.Topic, e.Source = take("type"), take("source")
		subject, key := take("subject"), take("partitionkey")
		switch kind, is := strings.CutSuffix(subject, "/"+key); {
		case key != "" && is:
			e.AggregateType, e.AggregateID = kind, key
		case key != "":
			e.AggregateID = key
		case m.Key == "":
			e.AggregateID = subject
		}
		e.TenantID, e.SchemaID = take("tenantid"), take("schemaid")
		e.SchemaVersion, _ = strconv.Atoi(take("schemaversion"))
		if at, err := time.Parse(time.RFC3339Nano, take("time")); err == nil {
			e.OccurredAt = at
		}
		take("datacontenttype")
		take("sequence") // of the other table; this one has its own
	}
	e.ID = m.id(cfg, e.Source, id)
	e.Metadata = metadata(take("metadata"), attributes)
	e.AggregateID = fit(e.AggregateID, maxKey)
	if utf8.RuneCountInString(e.Source) > maxSource { // a URI may be longer
		e.Metadata["source"], e.Source = e.Source, ""
	}
	e.Source = cmp.Or(e.Source, cfg.Name)
	return e
}

// structured returns the members of a CloudEvent in JSON, nil if the body is none.
func (m *Message) structured() (members map[string]json.RawMessage) {
	if m.Attributes["specversion"] != "" || !bytes.Contains(m.Body, []byte(`"specversion"`)) ||
		json.Unmarshal(m.Body, &members) != nil || members["specversion"] == nil || members["id"] == nil {
		return nil
	}
	return members
}

// id is that of the message, if it is a UUID; of what else tells a copy a UUID is made. A message
// that has nothing gets a new one.
func (m *Message) id(cfg *Config, source, id string) uuid.UUID {
	if parsed, err := uuid.Parse(id); err == nil && len(id) == 36 {
		return parsed
	}
	switch {
	case id != "":
		id = "id\x1f" + source + "\x1f" + id // CloudEvents: an id is its source's
	case m.Place != "":
		id = "place\x1f" + m.Place + m.Time.String() // of a topic that is made anew the places begin anew
	default:
		return uuid.Nil // the writer draws one
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(cfg.Name+"\x1f"+id))
}

// metadata is what an event's metadata was before cloudevent took it apart.
func metadata(rest string, attributes map[string]json.RawMessage) map[string]any {
	all := map[string]any{}
	if json.Unmarshal([]byte(rest), &all) != nil || all == nil {
		all = map[string]any{}
	}
	for name, value := range attributes {
		all[name] = value
	}
	return all
}

// fit is a name as a table takes it: one that is too long, or no text, is known by its hash.
func fit(name string, most int) string {
	if utf8.ValidString(name) && utf8.RuneCountInString(name) <= most && !strings.Contains(name, "\x00") {
		return name
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name)))
}

// unreadable is the event of a message that can be none. Its payload is the body as a JSON string,
// in base64 where it is no text; or, in short, what is to be said about it. What was read of it
// stays, if a table takes that.
func (m *Message) unreadable(cfg *Config, read outbox.Event, problem string, short bool) outbox.Event {
	e := outbox.Event{ID: read.ID, Topic: read.Topic, AggregateType: read.AggregateType, AggregateID: read.AggregateID,
		TenantID: read.TenantID, Source: cfg.Name, Metadata: map[string]any{Unreadable: problem, Place: m.Place}}
	body := strings.ReplaceAll(string(m.Body), "\x00", "\ufffd")
	switch {
	case short || len(m.Body) == 0:
		body = fmt.Sprintf("%s (%d bytes, %s)", problem, len(m.Body), m.Place)
	case !utf8.Valid(m.Body):
		body = base64.StdEncoding.EncodeToString(m.Body)
	}
	payload, _ := json.Marshal(body) // a string always marshals
	if e.Payload = []byte("null"); e.Validate(len(e.Payload)) != nil {
		e.Topic, e.AggregateType, e.TenantID = cmp.Or(cfg.Type, fit(m.Channel, maxTopic)), "", ""
		e.AggregateID = fit(m.Key, maxKey)
	}
	e.Payload = payload
	return e
}
