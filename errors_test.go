package outbox

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestClassify(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		name  string
		err   error
		class Class
		after time.Duration
	}{
		{"plain", cause, ClassRetryable, 0},
		{"permanent", Permanent(cause), ClassPermanent, 0},
		{"permanent, wrapped", fmt.Errorf("publish: %w", Permanent(cause)), ClassPermanent, 0},
		{"retry after", RetryAfter(cause, time.Minute), ClassRetryAfter, time.Minute},
		{"postponed", fmt.Errorf("publish: %w", Postponed(cause, time.Minute)), ClassPostponed, time.Minute},
		{"unavailable", Unavailable(cause), ClassUnavailable, 0},
		{"not attempted", fmt.Errorf("hold: %w", ErrNotAttempted), ClassNotAttempted, 0},
		{"class outside wins over what it wraps", Permanent(Unavailable(cause)), ClassPermanent, 0},
	} {
		if class, after := Classify(c.err); class != c.class || after != c.after {
			t.Errorf("%s: got %d, %s, want %d, %s", c.name, class, after, c.class, c.after)
		}
		if !errors.Is(c.err, cause) && c.class != ClassNotAttempted {
			t.Errorf("%s: the cause is lost", c.name)
		}
	}
	if got := Permanent(cause).Error(); got != "cause" {
		t.Errorf("a class changes the text to %q", got)
	}
}

func TestFieldError(t *testing.T) {
	cause := errors.New("cause")
	err := error(&FieldError{Event: 3, Field: "Metadata", Problem: "does not marshal to JSON", Err: cause})
	if got, want := err.Error(), "event 3: Metadata does not marshal to JSON: cause"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, ErrInvalidEvent) || !errors.Is(err, cause) {
		t.Errorf("%v: want it to be ErrInvalidEvent and its cause", err)
	}
	err = &FieldError{Field: "Payload", Problem: "has 2 bytes, the limit is 1", Err: ErrPayloadTooLarge}
	if got, want := err.Error(), "event 0: Payload has 2 bytes, the limit is 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if errors.Is(err, ErrDuplicateEvent) {
		t.Errorf("%v is ErrDuplicateEvent", err)
	}
}
