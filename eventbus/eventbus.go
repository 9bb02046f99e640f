// Package eventbus is the repository of table event_outbox: postgres.NewEventBus and
// sqlite.NewEventBus make one (docs/seeds.md, 05-01).
//
// Guaranteed: both have the same rows and the same answers. The events of an application that have
// the same key, or no key, are taken in order.
//
// Not guaranteed: an order among events of different keys, or of transactions that were open at the
// same time.
package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Bus is for producers, and for consumers that publish by themselves instead of running a relay. It
// is safe for concurrent use. Every method works inside the caller's transaction.
//
// TakePending refuses a table that a relay or a group serves. A relay that starts later does not
// look at what is taken: it publishes the events of open transactions again, and the next
// TakePending is refused.
type Bus[Tx any] interface {
	// Offer writes an event in tx: it exists exactly if tx commits. An event that the table cannot
	// hold is an *outbox.FieldError and one whose EventID is there already
	// outbox.ErrDuplicateEvent; tx stays usable after both. On PostgreSQL any other error has
	// aborted it.
	Offer(ctx context.Context, tx Tx, e Event) error
	// TakePending returns up to limit pending events (100 if limit is not positive), oldest first,
	// and keeps them from other takers until tx ends. Publish them, call MarkPublished and commit.
	// If one fails and is to be tried again, mark no later event of its key either. A crash before
	// the commit gives them all out again, so whoever receives them must expect copies.
	//
	// Per application and key, no event is returned while an earlier one is pending elsewhere: with
	// another taker, or waiting for a retry. Events without a key count as one key. So there may be
	// fewer than limit events, or none, although CountPending is not zero.
	//
	// If a relay or a group serves the table, the error is ErrServed. On PostgreSQL this is only
	// checked for a role with SELECT on outbox_relays, as outbox_relay has.
	TakePending(ctx context.Context, tx Tx, limit int) ([]Event, error)
	// ListPending returns a page of pending events without taking them: up to limit (100 if it is
	// not positive) whose row ids follow after, in the order of row ids. uuid.Nil gives the first
	// page, the last ID of a page the next one.
	ListPending(ctx context.Context, tx Tx, after uuid.UUID, limit int) ([]Event, error)
	// CountPending returns how many events are pending.
	CountPending(ctx context.Context, tx Tx) (int, error)
	// ByEventID returns the event with that EventID, whatever its status, or ErrNoEvent.
	ByEventID(ctx context.Context, tx Tx, eventID uuid.UUID) (Event, error)
	// MarkPublished makes pending events published, now. ids are row ids (Event.ID). It returns how
	// many changed; others are left as they are.
	MarkPublished(ctx context.Context, tx Tx, ids ...uuid.UUID) (int, error)
	// MarkFailed is Fail of events that could not be delivered, where nothing more is known about
	// it.
	MarkFailed(ctx context.Context, tx Tx, ids ...uuid.UUID) (int, error)
	// Fail makes pending events failed and keeps a dead letter of each, with why it failed. The
	// events are final unless an operator replays the letter, which makes the event pending again.
	// What follows them in their keys goes on. ids are row ids. It returns how many changed; others
	// are left as they are.
	//
	// An empty Reason is outbox.ReasonDeliveryFailed. On PostgreSQL the role needs INSERT on
	// job_dlq, as outbox_relay has.
	Fail(ctx context.Context, tx Tx, why outbox.Failure, ids ...uuid.UUID) (int, error)
}

// Event is a row of event_outbox. Offer needs AppID (of a Bus that speaks for one application it
// may be left out), EventType and Payload.
type Event struct {
	ID    uuid.UUID // of the row; zero makes Offer assign a UUIDv7
	AppID uuid.UUID // the application it belongs to, a row of table apps
	// What duplicates are told by; zero makes Offer assign one, so choose it where a job may be
	// repeated.
	EventID   uuid.UUID
	EventType string          // dotted: "order.placed"; at most 150 characters
	Payload   json.RawMessage // as for outbox.Event
	// Events of one application and key stay in order, and so do those of one application without a
	// key. At most 128 characters.
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

// ErrServed says that a relay or a group serves event_outbox. Both would publish the same events.
var ErrServed = errors.New("a relay or a group serves event_outbox; stop it, or take no events")

// ErrNoEvent says that the table has no such event, or that row-level security hides it.
var ErrNoEvent = errors.New("no such event")
