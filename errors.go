package outbox

import (
	"errors"
	"fmt"
	"time"
)

// What callers branch on.
var (
	// ErrInvalidEvent is matched by every *FieldError.
	ErrInvalidEvent = errors.New("invalid event")
	// ErrPayloadTooLarge is matched by the *FieldError of a payload over WriterConfig.MaxPayload.
	ErrPayloadTooLarge = errors.New("payload too large")
	// ErrDuplicateEvent says that an event with this id was written before. The transaction is
	// still usable.
	ErrDuplicateEvent = errors.New("duplicate event")
	// ErrNoTransaction says that a Writer was given nil, or that one for database/sql was given
	// what is no transaction: events written through a pool would exist whatever becomes of the
	// change that they tell of.
	ErrNoTransaction = errors.New("not a transaction")
	// ErrNotAttempted is a Sink's answer for a delivery it held back because an earlier one of the
	// same key failed. It costs no attempt.
	ErrNotAttempted = errors.New("not attempted: an earlier delivery of the same key failed")
	// ErrRowsHidden says that row-level security hides the table's rows from this role: a relay
	// would see an empty table for ever.
	ErrRowsHidden = errors.New("row-level security hides the rows from this role")
	// ErrNotAllowed says that this role lacks privileges on the table: a relay would go on failing.
	ErrNotAllowed = errors.New("this database role lacks privileges")
)

// FieldError says which field of an Event cannot be stored, and why. The INSERT was not sent.
type FieldError struct {
	Event   int    // position of the event in the Write call, from 0
	Field   string // Go name of the field, for instance "Topic"
	Problem string
	Err     error // a further cause, or nil
}

func (e *FieldError) Error() string {
	s := fmt.Sprintf("event %d: %s %s", e.Event, e.Field, e.Problem)
	if e.Err != nil && !errors.Is(e.Err, ErrPayloadTooLarge) {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap makes errors.Is(err, ErrInvalidEvent) true, and finds the further cause.
func (e *FieldError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrInvalidEvent}
	}
	return []error{ErrInvalidEvent, e.Err}
}

// A Sink classes its failures with these. An error of no class is retryable: it costs an attempt
// and is tried again after a growing delay.

type classedError struct {
	error
	class Class
	after time.Duration
}

func (e *classedError) Unwrap() error { return e.error }

// Class is what a failed delivery's error means for its future.
type Class int

// The classes of failure.
const (
	ClassRetryable    Class = iota // an attempt is counted, tried again after a growing delay
	ClassPermanent                 // will never succeed: dead at once, or at its second attempt where a sink owes it
	ClassRetryAfter                // an attempt is counted, tried again after the delay the receiver asked for
	ClassUnavailable               // the broker is down: no attempt is counted
	ClassNotAttempted              // behind a failure of its key, or had no turn in time: no attempt is counted
	ClassPostponed                 // not its turn: tried again after the sink's delay, no attempt is counted
)

// Permanent marks err as one that no retry can cure.
func Permanent(err error) error { return &classedError{error: err, class: ClassPermanent} }

// RetryAfter marks err as one that the receiver wants retried after d.
func RetryAfter(err error, d time.Duration) error {
	return &classedError{error: err, class: ClassRetryAfter, after: d}
}

// Unavailable marks err as the broker's own state rather than the event's: connection refused,
// timed out, out of memory, read-only. Nothing is counted against the event.
func Unavailable(err error) error { return &classedError{error: err, class: ClassUnavailable} }

// Postponed marks err as one for which this event waits, and not the whole sink: its endpoint
// rests, or has no room. Nothing is counted against the event. An event that is always postponed is
// never dead, so a Sink postpones only what it has not sent, or what was refused unseen.
func Postponed(err error, d time.Duration) error {
	return &classedError{error: err, class: ClassPostponed, after: d}
}

// Because gives a failure its name: the reason that its dead letter has, where that is one an event
// can have, and the beginning of its text in any case. It does not change the class.
func Because(reason Reason, err error) error { return &reasonError{error: err, reason: reason} }

type reasonError struct {
	error
	reason Reason
}

func (e *reasonError) Error() string {
	if e.reason == "" {
		return e.error.Error()
	}
	return string(e.reason) + ": " + e.error.Error()
}

func (e *reasonError) Unwrap() error { return e.error }

// ReasonOf returns what a delivery's error is called in job_dlq, which has five names for events.
func ReasonOf(err error) Reason {
	var named *reasonError
	if errors.As(err, &named) {
		switch named.reason {
		case ReasonDeserializationFailed, ReasonDuplicateEvent, ReasonHandlerMissing, ReasonHandlerTimeout:
			return named.reason
		}
	}
	return ReasonDeliveryFailed
}

// Classify returns the class of a delivery's error and, for ClassRetryAfter and ClassPostponed, the
// delay.
func Classify(err error) (Class, time.Duration) {
	var c *classedError
	switch {
	case errors.As(err, &c):
		return c.class, c.after
	case errors.Is(err, ErrNotAttempted):
		return ClassNotAttempted, 0
	default:
		return ClassRetryable, 0
	}
}

// Reason is why a delivery died; the values are those of the job_dlq table for source "event".
type Reason string

// The reasons an event can have in the dead-letter queue (05-01).
const (
	ReasonDeliveryFailed        Reason = "DeliveryFailed"
	ReasonDeserializationFailed Reason = "DeserializationFailed"
	ReasonDuplicateEvent        Reason = "DuplicateEvent"
	ReasonHandlerMissing        Reason = "HandlerMissing"
	ReasonHandlerTimeout        Reason = "HandlerTimeout"
)
