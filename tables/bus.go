package tables

import (
	"encoding/json"
	"errors"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// BusEvent is a row of event_outbox. Offer needs AppID (of a store whose EventBus has one it may be left out),
// EventType and Payload.
type BusEvent struct {
	ID    uuid.UUID // of the row; zero makes Offer assign a UUIDv7
	AppID uuid.UUID // the application it belongs to, a row of table apps
	// What duplicates are told by; zero makes Offer assign one, so choose it where a job may be repeated.
	EventID   uuid.UUID
	EventType string          // dotted: "order.placed"; at most outbox.MaxTopic characters
	Payload   json.RawMessage // as for outbox.Event
	// Events of one application and key stay in order; empty: no order; at most outbox.MaxAggregateID characters.
	Key string

	Status      BusStatus  // as read; Offer always writes BusPending
	PublishedAt *time.Time // as read; nil until published
}

// BusStatus is the state of a row of event_outbox. It leaves BusPending once and for good.
type BusStatus string

// The states that 05-01 names.
const (
	BusPending   BusStatus = "pending"
	BusPublished BusStatus = "published"
	BusFailed    BusStatus = "failed"
)

// DefaultTake is how many events TakePending and ListPending return if they are not told.
const DefaultTake = 100

var dotted = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$`)

// Prepare makes e ready to be stored: it draws the ids that are zero, after reporting what the table cannot hold as an
// *outbox.FieldError. maxPayload is in bytes.
func (e *BusEvent) Prepare(maxPayload int) error {
	if e.AppID == uuid.Nil {
		return &outbox.FieldError{Field: "AppID", Problem: "is required"}
	}
	as := outbox.Event{Topic: e.EventType, AggregateID: e.Key, Payload: e.Payload, Source: "event_outbox"}
	if err := as.Validate(maxPayload); err != nil {
		var field *outbox.FieldError
		if errors.As(err, &field) {
			switch field.Field {
			case "Topic":
				field.Field = "EventType"
			case "AggregateID":
				field.Field = "Key"
			}
		}
		return err
	}
	if !dotted.MatchString(e.EventType) {
		return &outbox.FieldError{Field: "EventType",
			Problem: `must be dotted, like "order.placed": parts of letters, digits, _ or -`}
	}
	for _, id := range []*uuid.UUID{&e.ID, &e.EventID} {
		if *id != uuid.Nil {
			continue
		}
		fresh, err := outbox.NewID()
		if err != nil {
			return err
		}
		*id = fresh
	}
	return nil
}

// TakeLimit is limit, or DefaultTake where that is not positive.
func TakeLimit(limit int) int {
	if limit <= 0 {
		return DefaultTake
	}
	return limit
}
