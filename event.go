package outbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Limits of an Event, in characters, as ADR-004 declares the columns of outbox_events.
const (
	maxTopic         = 150
	maxSchemaID      = 128
	maxAggregateID   = 128
	maxAggregateType = 100
	maxTenantID      = 64
	maxSource        = 50
)

// DefaultMaxPayload is how many bytes of JSON a payload may have unless WriterConfig says
// otherwise.
const DefaultMaxPayload = 1 << 20

// Event is something that happened, with the fields of ADR-004. Topic and Payload are required;
// Source is required too but may come from WriterConfig.Source.
type Event struct {
	// ID identifies the event for ever: it is the duplicate key at every sink and the message id a
	// consumer sees. The zero value makes the Writer assign a UUIDv7, which costs the database
	// least: no row can have that id yet. A producer that may repeat a Write (a retried job) must
	// choose it itself.
	ID uuid.UUID
	// Topic says what happened, for instance "order.placed". It is also the destination unless
	// Destinations is set.
	Topic string
	// OccurredAt is when it happened; zero means now. Kept to the microsecond.
	OccurredAt time.Time
	// SchemaID and SchemaVersion describe the payload; a SchemaVersion of zero means 1.
	SchemaID      string
	SchemaVersion int
	// AggregateType and AggregateID name the thing it happened to. Events of one tenant, type and
	// id stay in order; an empty AggregateID means that the event has no order.
	AggregateType string
	AggregateID   string
	// TenantID is the owner; empty means "default".
	TenantID string
	// Source is the bounded context that speaks (column source_bc).
	Source string
	// Destinations lists where to deliver, each once; empty means Topic. Each has its own outcome.
	Destinations []string
	// Payload is the event's JSON, at most WriterConfig.MaxPayload bytes, also with its numbers
	// spelled out (1e9 is ten).
	Payload json.RawMessage
	// Metadata travels with the event: trace_id, user_id, traceparent, whatever marshals to a JSON
	// object.
	Metadata map[string]any
}

// NewEvent returns an event with a fresh id, now as its time, and v marshalled as its payload.
func NewEvent(topic string, v any) (Event, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return Event{}, &FieldError{Field: "Payload", Problem: "does not marshal to JSON", Err: err}
	}
	id, err := NewID()
	if err != nil {
		return Event{}, err
	}
	return Event{ID: id, Topic: topic, OccurredAt: time.Now(), Payload: payload}, nil
}

// NewID returns a UUIDv7: ids made later sort later, which keeps the primary key's index
// append-only.
func NewID() (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, fmt.Errorf("make event id: %w", err)
	}
	return id, nil
}

// Validate reports the first thing about e that the database would refuse, as a *FieldError.
// maxPayload is in bytes, as sent and with numbers as jsonb spells them out: 1e131071 counts as
// 131,072.
//
// It exists because a failed INSERT aborts the caller's whole transaction in PostgreSQL. A bad
// event must be refused before it is sent, so that the business can decide what to do about it.
func (e *Event) Validate(maxPayload int) error {
	for _, f := range []struct {
		name     string
		value    string
		max      int
		required bool
	}{
		{"Topic", e.Topic, maxTopic, true},
		{"SchemaID", e.SchemaID, maxSchemaID, false},
		{"AggregateType", e.AggregateType, maxAggregateType, false},
		{"AggregateID", e.AggregateID, maxAggregateID, false},
		{"TenantID", e.TenantID, maxTenantID, false},
		{"Source", e.Source, maxSource, true},
	} {
		if f.required && f.value == "" {
			return &FieldError{Field: f.name, Problem: "is required"}
		}
		if err := checkText(f.name, f.value, f.max); err != nil {
			return err
		}
	}
	if err := e.checkDestinations(); err != nil {
		return err
	}
	if e.SchemaVersion < 0 || e.SchemaVersion > 1<<31-1 {
		return &FieldError{Field: "SchemaVersion", Problem: "must be between 0 and 2147483647"}
	}
	if y := e.OccurredAt.UTC().Year(); !e.OccurredAt.IsZero() && (y < 1 || y > 9999) {
		return &FieldError{Field: "OccurredAt", Problem: fmt.Sprintf("year %d is outside 1 to 9999", y)}
	}
	if len(e.Payload) == 0 {
		return &FieldError{Field: "Payload", Problem: "is required (use null for an event without data)"}
	}
	if len(e.Payload) > maxPayload {
		problem := fmt.Sprintf("has %d bytes, the limit is %d", len(e.Payload), maxPayload)
		return &FieldError{Field: "Payload", Problem: problem, Err: ErrPayloadTooLarge}
	}
	return checkJSON("Payload", e.Payload, maxPayload)
}

func (e *Event) checkDestinations() error {
	for i, d := range e.Destinations {
		name := fmt.Sprintf("Destinations[%d]", i)
		if d == "" {
			return &FieldError{Field: name, Problem: "is empty"}
		}
		if err := checkText(name, d, maxTopic); err != nil {
			return err
		}
		if slices.Contains(e.Destinations[:i], d) { // outcomes are kept by name: two of one name could not differ
			return &FieldError{Field: name, Problem: "repeats an earlier one"}
		}
	}
	return nil
}

func checkText(field, s string, maxChars int) error {
	if !utf8.ValidString(s) {
		return &FieldError{Field: field, Problem: "is not valid UTF-8"}
	}
	n := 0
	for _, r := range s {
		if r == 0 {
			return &FieldError{Field: field, Problem: "contains NUL, which PostgreSQL text cannot hold"}
		}
		n++
	}
	if n > maxChars {
		return &FieldError{Field: field, Problem: fmt.Sprintf("has %d characters, the limit is %d", n, maxChars)}
	}
	return nil
}
