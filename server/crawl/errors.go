package crawl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// What callers branch on.
var (
	// ErrNotFound says that the tenant has no such run.
	ErrNotFound = errors.New("there is no such run")
	// ErrInvalid is matched by every *FieldError.
	ErrInvalid = errors.New("invalid")
	// ErrKeyReused says that the idempotency key belongs to a run with other content.
	ErrKeyReused = errors.New("the idempotency key was used for another run")
	// ErrEventReused says that an event with this id is in the run's log with another type or
	// payload.
	ErrEventReused = errors.New("the event id was used for another event")
	// ErrLeaseLost says that the run is another worker's by now.
	ErrLeaseLost = errors.New("the lease of the run is lost")
	// ErrNoTables says that the database has no tables of runs.
	ErrNoTables = errors.New("the database of this server has no tables of runs; run: outbox migrate up " +
		"--set crawl, then restart the server")
	// ErrNoRun says that no run waits for a worker.
	ErrNoRun = errors.New("no run waits")
)

// FieldError says which field cannot be accepted, and why. Nothing was changed.
type FieldError struct {
	Field   string // as in the API, for instance "appPackage" or "events[3].type"
	Problem string
}

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Unwrap makes errors.Is(err, ErrInvalid) true.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// QuotaError says that a tenant has as many runs that wait as it may have. Nothing was changed.
type QuotaError struct{ Most int }

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%d runs of the tenant wait already, and no more are taken: try again when some have started, or "+
		"cancel some", e.Most)
}

// StateError says that a run cannot be changed like that in the status it has.
type StateError struct {
	Run    uuid.UUID
	Status Status   // it has
	From   []Status // it would have to have one of these
}

func (e *StateError) Error() string {
	if slices.Equal(e.From, []Status{Running}) && e.Status == Pending {
		return fmt.Sprintf("run %s is PENDING: start it first", e.Run)
	}
	if e.Status.Ended() {
		return fmt.Sprintf("run %s has ended: it is %s", e.Run, e.Status)
	}
	want := make([]string, len(e.From))
	for i, s := range e.From {
		want[i] = string(s)
	}
	return fmt.Sprintf("run %s is %s, want %s", e.Run, e.Status, strings.Join(want, " or "))
}
