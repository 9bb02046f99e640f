package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// The reasons for which jobs fail for good (docs/seeds.md, 05-01), beside
// outbox.ReasonHandlerMissing. Those of events are package outbox's.
const (
	JobMaxRetries        outbox.Reason = "MaxRetries"
	JobValidation        outbox.Reason = "Validation"
	JobRunnerUnavailable outbox.Reason = "RunnerUnavailable"
	JobTimeout           outbox.Reason = "Timeout"
	JobPanic             outbox.Reason = "Panic"
)

// reasons are those that job_dlq allows for each source.
var reasons = map[Source][]outbox.Reason{
	SourceJob: {JobMaxRetries, JobValidation, outbox.ReasonHandlerMissing, JobRunnerUnavailable, JobTimeout, JobPanic},
	SourceEvent: {outbox.ReasonDeliveryFailed, outbox.ReasonDeserializationFailed, outbox.ReasonDuplicateEvent,
		outbox.ReasonHandlerMissing, outbox.ReasonHandlerTimeout},
}

// ReasonError says that letters of a source cannot have a reason: all but HandlerMissing belong to
// one source.
type ReasonError struct {
	Source Source
	Reason outbox.Reason
}

func (e *ReasonError) Error() string {
	known, ok := reasons[e.Source]
	if !ok {
		return fmt.Sprintf("Source is %q, must be %q or %q", e.Source, SourceJob, SourceEvent)
	}
	return fmt.Sprintf("Reason is %q, must be one of %v for source %q", e.Reason, known, e.Source)
}

// CheckReason returns a *ReasonError for a reason that letters of the source cannot have.
func (s Source) CheckReason(reason outbox.Reason) error {
	if !slices.Contains(reasons[s], reason) {
		return &ReasonError{s, reason}
	}
	return nil
}

// Job is a job that failed for good, whoever ran it. With SourceEvent it is an event that a
// consumer gives up: ID is the event's id then, and Type its topic. A relay keeps the letters of
// what it cannot deliver by itself.
type Job struct {
	Source    Source    // empty: SourceJob
	ID        uuid.UUID // the job's own id
	Tenant    string    // namespace of an application, which is made if there is none; empty: "default"
	UserID    uuid.UUID // zero: none
	RequestID uuid.UUID // zero: none
	Type      string    // which handler it is for
	Payload   json.RawMessage
	Reason    outbox.Reason
	Attempts  int       // at least 1
	Errors    []Failure // what happened, oldest first; at least the last
}

// Failure is one failed attempt.
type Failure struct {
	Error     string    `json:"error"`
	Timestamp time.Time `json:"timestamp"`
}

// validate reports everything about j that cannot be stored.
func (j *Job) validate() error {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if j.ID == uuid.Nil {
		add("ID is required")
	}
	if j.Type == "" {
		add("Type is required")
	}
	if err := cmp.Or(j.Source, SourceJob).CheckReason(j.Reason); err != nil {
		problems = append(problems, err)
	}
	if j.Attempts < 1 || j.Attempts > math.MaxInt32 {
		add("Attempts is %d, must be between 1 and %d", j.Attempts, math.MaxInt32)
	}
	if len(j.Errors) == 0 {
		add("Errors is empty, must hold at least the last error")
	}
	// What the database refuses of an event's payload and tenant it refuses of a job's.
	probe := outbox.Event{Topic: "job", Source: "job", TenantID: j.Tenant, Payload: j.Payload}
	var field *outbox.FieldError
	if err := probe.Validate(math.MaxInt); errors.As(err, &field) {
		add("%s %s", field.Field, field.Problem)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidJob, err)
	}
	return nil
}

// Recorder keeps letters of jobs, in a transaction of its caller's or at once: see the store's.
type Recorder interface {
	// RecordJob stores a valid job's letter, of its Source, and returns the letter's id.
	RecordJob(ctx context.Context, job Job) (uuid.UUID, error)
}

// Add stores the letter of a failed job, or of an event that a consumer gives up, and returns the
// letter's id. A job that is recorded again with the same attempts, because its runner did not
// learn that it was, keeps the letter it has.
func Add(ctx context.Context, r Recorder, job Job) (uuid.UUID, error) {
	if err := job.validate(); err != nil {
		return uuid.Nil, fmt.Errorf("record job %s: %w", job.ID, err)
	}
	id, err := r.RecordJob(ctx, job)
	if err != nil {
		return uuid.Nil, fmt.Errorf("record job %s: %w", job.ID, err)
	}
	return id, nil
}
