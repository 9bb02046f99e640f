package deadletter

import (
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

// JobReason is why a job failed for good (plan 05-01). An event's reasons are outbox.Reason.
type JobReason string

// The reasons of jobs.
const (
	JobMaxRetries        JobReason = "MaxRetries"
	JobValidation        JobReason = "Validation"
	JobHandlerMissing    JobReason = "HandlerMissing"
	JobRunnerUnavailable JobReason = "RunnerUnavailable"
	JobTimeout           JobReason = "Timeout"
	JobPanic             JobReason = "Panic"
)

var jobReasons = []JobReason{JobMaxRetries, JobValidation, JobHandlerMissing, JobRunnerUnavailable, JobTimeout, JobPanic}

// Job is a job that failed for good, whoever ran it.
type Job struct {
	ID        uuid.UUID // the job's own id
	Tenant    string    // namespace of an application, which is made if there is none; empty: "default"
	UserID    uuid.UUID // zero: none
	RequestID uuid.UUID // zero: none
	Type      string    // which handler it is for
	Payload   json.RawMessage
	Reason    JobReason
	Attempts  int       // at least 1
	Errors    []Failure // what happened, oldest first; at least the last
}

// Failure is one failed attempt.
type Failure struct {
	Error     string    `json:"error"`
	Timestamp time.Time `json:"timestamp"`
}

// Validate reports everything about j that cannot be stored.
func (j *Job) Validate() error {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if j.ID == uuid.Nil {
		add("ID is required")
	}
	if j.Type == "" {
		add("Type is required")
	}
	if !slices.Contains(jobReasons, j.Reason) {
		add("Reason is %q, must be one of %v: the others are for events", j.Reason, jobReasons)
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
	// RecordJob stores a valid job's letter and returns the letter's id.
	RecordJob(ctx context.Context, job Job) (uuid.UUID, error)
}

// Record stores the letter of a failed job and returns the letter's id. A job that is recorded again with the same attempts, because its runner
// did not learn that it was, keeps the letter it has.
func Record(ctx context.Context, r Recorder, job Job) (uuid.UUID, error) {
	if err := job.Validate(); err != nil {
		return uuid.Nil, fmt.Errorf("record job %s: %w", job.ID, err)
	}
	id, err := r.RecordJob(ctx, job)
	if err != nil {
		return uuid.Nil, fmt.Errorf("record job %s: %w", job.ID, err)
	}
	return id, nil
}
