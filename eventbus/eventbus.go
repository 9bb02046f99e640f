// Package eventbus is the rows of event_outbox as the event bus of a store offers, takes and marks them:
// postgres.EventBus and sqlite.EventBus (docs/seeds.md, 05-01).
//
// Guaranteed: both have the same rows and the same answers.
//
// Not guaranteed: an order among events without a key.
package eventbus

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Event is a row of event_outbox. Offer needs AppID (of a store whose EventBus has one it may be left out),
// EventType and Payload.
type Event struct {
	ID    uuid.UUID // of the row; zero makes Offer assign a UUIDv7
	AppID uuid.UUID // the application it belongs to, a row of table apps
	// What duplicates are told by; zero makes Offer assign one, so choose it where a job may be repeated.
	EventID   uuid.UUID
	EventType string          // dotted: "order.placed"; at most 150 characters
	Payload   json.RawMessage // as for outbox.Event
	// Events of one application and key stay in order; empty: no order; at most 128 characters.
	Key string

	Status      Status     // as read; Offer always writes Pending
	PublishedAt *time.Time // as read; nil until published
}

// Status is the state of a row of event_outbox. It leaves Pending once and for good.
type Status string

// The states that 05-01 names.
const (
	Pending   Status = "pending"
	Published Status = "published"
	Failed    Status = "failed"
)

// ErrNoEvent says that the table has no such event, or that row-level security hides it.
var ErrNoEvent = errors.New("no such event")
