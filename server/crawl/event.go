package crawl

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// The event types of runs. Those a run's changes append by themselves cannot be appended by hand:
// RunStarted and the three terminal ones.
const (
	RunStarted         = "RUN_STARTED"
	NodeStart          = "NODE_START"
	NodeComplete       = "NODE_COMPLETE"
	ScreenshotCaptured = "SCREENSHOT_CAPTURED"
	ActionExecuted     = "ACTION_EXECUTED"
	Processing         = "PROCESSING"
	ErrorOccurred      = "ERROR"
	RunCompleted       = "RUN_COMPLETED"
	RunFailed          = "RUN_FAILED"
	RunCancelled       = "RUN_CANCELLED"
)

// Terminal tells whether an event of this type is a run's last.
func Terminal(eventType string) bool {
	return eventType == RunCompleted || eventType == RunFailed || eventType == RunCancelled
}

// Event is one entry of a run's log.
type Event struct {
	Run       uuid.UUID       `json:"-"`
	Tenant    string          `json:"-"`
	Seq       int64           `json:"seq"` // from 1, without a gap within the run
	ID        uuid.UUID       `json:"id"`
	Type      string          `json:"type"`
	CreatedAt time.Time       `json:"createdAt"`
	Payload   json.RawMessage `json:"payload"`
}

// NewEvent is an event to append.
type NewEvent struct {
	ID      uuid.UUID // makes appending it again harmless; the zero value: a new UUIDv7
	Type    string    // upper case, digits and _, at most 50 characters
	Payload json.RawMessage
}

// Delivery returns the event as the relay hands it to a sink, so that outbox.CloudEvent makes the
// same bytes of the log's copy as of the outbox's. A subscriber cannot tell which of them it got.
func (e *Event) Delivery() outbox.Delivery {
	return outbox.Delivery{Record: &outbox.Record{
		Event: outbox.Event{
			ID: e.ID, Topic: e.Type, OccurredAt: e.CreatedAt, AggregateID: e.Run.String(), TenantID: e.Tenant, Source: Source,
			SchemaVersion: 1, Payload: e.Payload,
		},
		Sequence: e.Seq,
	}}
}

// Source is the source of a run's events as CloudEvents: the table that the relay reads them from.
const Source = "crawl_outbox"
