// Package subscription is what a durable subscription is to a server: its events are asked for by
// name, and acknowledged. All of its state is in the database (docs/adr/0044), so any process
// serves any request.
//
// Guaranteed: requests that wait for events cost one look at the database a second, together, and
// hold no connection.
//
// It contains no SQL and no HTTP: package pgstore keeps subscriptions, package gateway serves them.
package subscription

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// ErrUnknown says that there is no such subscription of the tenant.
var ErrUnknown = errors.New("there is no such subscription")

// ErrRefused is in the errors of requests that the database refuses because of what they ask for.
var ErrRefused = errors.New("refused")

// ErrState is in the errors of requests that the database refuses because of the state of the
// subscription or of its log.
var ErrState = errors.New("not possible now")

// ErrPaused says that an operator has paused the subscription: its consumers get no events.
var ErrPaused = errors.New("the subscription is paused by an operator")

// ErrTooMany says that the tenant has as many subscriptions as it may.
var ErrTooMany = errors.New("the tenant has as many subscriptions as it may have; remove one first")

// ErrExists says that there is a subscription of the name already, with other settings or of
// another tenant.
var ErrExists = errors.New("a subscription of this name exists with other settings or for another tenant; " +
	"remove it or choose another name")

// Given is an event that a subscription gives, until it is acknowledged with its token or its lease
// is over.
type Given struct {
	ID         uuid.UUID       `json:"id"`
	Position   string          `json:"position" doc:"In the log, a number. Of one key, an event that was written later has a greater one."`
	Token      uuid.UUID       `json:"token" doc:"To acknowledge it with."`
	Attempt    int             `json:"attempt" doc:"How often it was given, this time included."`
	Type       string          `json:"type"`
	Key        *string         `json:"key" doc:"The aggregate's id; null: it has none."`
	OrderKey   *string         `json:"order_key" doc:"What keeps events in order: those with the same one, of tenant, aggregate type and id. null: this one waits for nothing."`
	Tenant     string          `json:"tenant"`
	OccurredAt time.Time       `json:"occurred_at"`
	Payload    json.RawMessage `json:"payload"`
	Metadata   json.RawMessage `json:"metadata" doc:"null: it has none."`
}

// Receipt names an event that was given.
type Receipt struct {
	ID    uuid.UUID `json:"id" format:"uuid"`
	Token uuid.UUID `json:"token" format:"uuid"`
}

// Refused is an acknowledgement that changed nothing.
type Refused struct {
	ID     uuid.UUID `json:"id"`
	Reason string    `json:"reason" enum:"lapsed,unknown" doc:"lapsed: it is another's, or waits to be given again. unknown: it is acknowledged already, or was never given."`
}

// Failure is what came of an event that was given back.
type Failure struct {
	Attempt int        `json:"attempt"`
	AgainAt *time.Time `json:"again_at" doc:"null: never, it is a dead letter."`
	Dead    bool       `json:"dead"`
}

// Settings make a subscription.
type Settings struct {
	Name, Tenant string     // "": of all tenants
	Types        []string   // nil: all
	From         *time.Time // nil: what is written from now on
	Earliest     bool       // all that there is; From is nil
	Lease        time.Duration
	MaxAttempts  int
	Limit        int // subscriptions of the tenant; 0: no limit
}

// State is how a subscription stands.
type State struct {
	Name        string     `json:"name"`
	Tenant      string     `json:"tenant" doc:"Empty: of all tenants."`
	Types       []string   `json:"types" doc:"null: all."`
	Lease       string     `json:"lease"`
	MaxAttempts int        `json:"max_attempts"`
	Position    string     `json:"position" doc:"How far the log has been fetched, a number."`
	Behind      int        `json:"behind" doc:"Rows of the log after that; it is counted up to 100,000."`
	Outstanding int        `json:"outstanding" doc:"Events that are fetched and not acknowledged."`
	Oldest      *time.Time `json:"oldest" doc:"When the oldest of those was written."`
	SeenAt      time.Time  `json:"seen_at" doc:"When a consumer last asked for events, 10 s early at most."`
	PausedAt    *time.Time `json:"paused_at" doc:"When an operator paused it; null: it is not paused."`
	Letters     *int       `json:"letters" doc:"Pending dead letters; null: this role sees none."`
}

// Operator pauses and resumes, for the record.
type Operator struct{ Actor, Reason string }

// Store keeps subscriptions. One of another tenant is ErrUnknown; an empty tenant stands for all.
type Store interface {
	// Next returns ErrPaused where the subscription is paused.
	Next(ctx context.Context, tenant, name string, most int) ([]Given, error)
	Ack(ctx context.Context, tenant, name string, events []Receipt) (acknowledged int, refused []Refused, err error)
	// Nack returns nil where the token is not the event's. reason is the letter's if the event
	// becomes one; "" is DeliveryFailed.
	Nack(ctx context.Context, tenant, name string, event Receipt, why, reason string, delay *time.Duration) (
		*Failure, error)
	// Subscribe tells whether it made the subscription; one with the same settings is left as it
	// is.
	Subscribe(ctx context.Context, s Settings) (created bool, err error)
	// Rewind moves a subscription back: what was written then or later comes again.
	Rewind(ctx context.Context, tenant, name string, to time.Time) error
	Remove(ctx context.Context, tenant, name string) error
	// Pause pauses a subscription or resumes it, and tells whether that changed anything.
	Pause(ctx context.Context, tenant, name string, paused bool, by Operator) (changed bool, err error)
	List(ctx context.Context, tenant string) ([]State, error)
	// Ready returns those for which Next may have something.
	Ready(ctx context.Context, of []Name) ([]Name, error)
}

// Name is a subscription as a tenant calls it.
type Name struct{ Tenant, Name string }

// DefaultAttempts is after how many an event is a dead letter.
const DefaultAttempts = 5

// Parse reads where a subscription begins (earliest, latest, or a time; "" is latest) and its lease
// ("" is 30 s). What is neither is ErrRefused.
func Parse(from, lease string) (s Settings, err error) {
	switch from {
	case "", "latest":
	case "earliest":
		s.Earliest = true
	default:
		at, err := time.Parse(time.RFC3339, from)
		if err != nil {
			return s, fmt.Errorf("%w: from is %q, want earliest, latest or a time such as 2026-11-25T08:00:00Z", ErrRefused,
				from)
		}
		s.From = &at
	}
	if s.Lease, err = time.ParseDuration(cmp.Or(lease, "30s")); err != nil || s.Lease < time.Millisecond ||
		s.Lease > 24*time.Hour {
		return s, fmt.Errorf("%w: lease is %q, want a time of 1ms to 24h, such as 30s", ErrRefused, lease)
	}
	return s, nil
}
