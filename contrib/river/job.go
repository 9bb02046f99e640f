package outboxriver

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/riverqueue/river/rivertype"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
)

// JobID returns the id under which letters know the job that River numbers id; schema is
// river.Config.Schema. Its last 15 digits are River's id in hexadecimal. It is a UUIDv8 and not a
// hash of all (UUIDv5), because a replay goes by this id: so jobs go in the order of River's
// numbers.
func JobID(schema string, id int64) uuid.UUID {
	sum := sha256.Sum256([]byte("river/" + schema))
	var u uuid.UUID
	copy(u[:8], sum[:8])
	binary.BigEndian.PutUint64(u[8:], uint64(id))
	u[6] = u[6]&0x0f | 0x80 // version 8
	u[8] = u[8]&0x3f | 0x80 // variant; a sequence does not reach the two bits that this costs
	return u
}

// riverID returns River's number of a job, if the id is one that JobID returns.
func riverID(schema string, u uuid.UUID) (id int64, ours bool) {
	id = int64(binary.BigEndian.Uint64(u[8:]) &^ (3 << 62))
	return id, JobID(schema, id) == u
}

// payload is what a letter keeps: job_dlq has one column for all that a replay needs, and an
// operator finds River's id in it.
type payload struct {
	Args  json.RawMessage `json:"args"`
	River settings        `json:"river"`
}

// settings are what River knows of a job beside its arguments.
type settings struct {
	ID          int64           `json:"id"`
	Queue       string          `json:"queue"`
	Priority    int             `json:"priority"`
	MaxAttempts int             `json:"max_attempts"`
	Tags        []string        `json:"tags,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

func encode(job *rivertype.JobRow) (json.RawMessage, error) {
	return json.Marshal(payload{Args: object(job.EncodedArgs),
		River: settings{ID: job.ID, Queue: job.Queue, Priority: job.Priority,
			MaxAttempts: job.MaxAttempts, Tags: job.Tags, Metadata: object(job.Metadata)}})
}

// object replaces what is missing: of a row that River could not decode it hands over what it
// could.
func object(text []byte) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("{}")
	}
	return text
}

// ErrValidation marks a job that can never succeed as it is. A worker that returns
//
//	river.JobCancel(fmt.Errorf("%w: no such customer", outboxriver.ErrValidation))
//
// gets a letter with reason Validation.
var ErrValidation = errors.New("invalid job arguments")

// reasonOf maps what a worker returned.
func reasonOf(err error) outbox.Reason {
	var unknown *rivertype.UnknownJobKindError
	switch {
	case errors.As(err, &unknown):
		return outbox.ReasonHandlerMissing
	case errors.Is(err, ErrValidation), undecodable(err):
		return deadletter.JobValidation
	case errors.Is(err, context.DeadlineExceeded): // River's own timeout too
		return deadletter.JobTimeout
	}
	return deadletter.JobMaxRetries
}

// undecodable tells whether the arguments are not what the worker takes. River returns the
// decoder's error as it is; one that a worker has wrapped is about something else that it read.
func undecodable(err error) bool {
	switch err.(type) { //nolint:errorlint // see above: wrapped is another case
	case *json.UnmarshalTypeError, *json.SyntaxError:
		return true
	}
	return false
}

// rescued is the error that River's rescuer writes on jobs whose process is gone. River does not
// export it; a test with a killed process holds it.
const rescued = "Stuck job rescued by JobRescuer"

// reasonOfText maps an error as River's table keeps it.
func reasonOfText(kind string, e rivertype.AttemptError) outbox.Reason {
	unknown := rivertype.UnknownJobKindError{Kind: kind}
	switch {
	case e.Trace != "":
		return deadletter.JobPanic
	case e.Error == rescued:
		return deadletter.JobRunnerUnavailable
	case e.Error == unknown.Error():
		return outbox.ReasonHandlerMissing
	case strings.Contains(e.Error, ErrValidation.Error()), strings.HasPrefix(e.Error, "json: cannot unmarshal"):
		return deadletter.JobValidation
	case strings.Contains(e.Error, context.DeadlineExceeded.Error()):
		return deadletter.JobTimeout
	}
	return deadletter.JobMaxRetries
}
