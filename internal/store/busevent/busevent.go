// Package busevent is the event bus of any database: the table event_outbox in a caller's
// transaction.
//
// Guaranteed: what Prepare lets pass fits event_outbox in both databases.
//
// Not guaranteed: that the application exists; the database knows.
package busevent

import (
	"errors"
	"regexp"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/eventbus"
)

// defaultTake is how many events TakePending and ListPending return if they are not told.
const defaultTake = 100

var dotted = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$`)

// Prepare makes e ready to be stored: it draws the ids that are zero, after reporting what the
// table cannot hold as an *outbox.FieldError. maxPayload is in bytes.
func Prepare(e *eventbus.Event, maxPayload int) error {
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

// takeLimit is limit, or defaultTake where that is not positive.
func takeLimit(limit int) int {
	if limit <= 0 {
		return defaultTake
	}
	return limit
}
