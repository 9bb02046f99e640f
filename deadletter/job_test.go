package deadletter_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
)

// acceptor accepts every job that reaches it.
type acceptor struct{}

func (acceptor) RecordJob(context.Context, deadletter.Job) (uuid.UUID, error) { return uuid.New(), nil }

func failedJob() deadletter.Job {
	return deadletter.Job{ID: uuid.New(), Type: "mail", Payload: json.RawMessage(`{"to": "x"}`),
		Reason: deadletter.JobMaxRetries, Attempts: 3, Errors: []deadletter.Failure{{Error: "refused"}}}
}

func TestAddRefusesInvalidJob(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*deadletter.Job){
		`Reason is "DeliveryFailed", must be one of [MaxRetries`: func(j *deadletter.Job) { j.Reason = "DeliveryFailed" },
		`for source "event"`:  func(j *deadletter.Job) { j.Source = deadletter.SourceEvent },
		`Source is "batch"`:   func(j *deadletter.Job) { j.Source = "batch" },
		"ID is required":      func(j *deadletter.Job) { j.ID = uuid.Nil },
		"Type is required":    func(j *deadletter.Job) { j.Type = "" },
		"Attempts is 0":       func(j *deadletter.Job) { j.Attempts = 0 },
		"Errors is empty":     func(j *deadletter.Job) { j.Errors = nil },
		"Payload is required": func(j *deadletter.Job) { j.Payload = nil },
		"Payload is not":      func(j *deadletter.Job) { j.Payload = json.RawMessage("{") },
		"TenantID has 65":     func(j *deadletter.Job) { j.Tenant = strings.Repeat("x", 65) },
	} {
		j := failedJob()
		change(&j)
		if _, err := deadletter.Add(t.Context(), acceptor{}, j); !errors.Is(err, deadletter.ErrInvalidJob) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrInvalidJob that says %q", err, says)
		}
	}
}

func TestAddAcceptsOnlyReasonsOfItsSource(t *testing.T) {
	t.Parallel()
	for source, reasons := range map[deadletter.Source]map[outbox.Reason]bool{
		deadletter.SourceEvent: {outbox.ReasonDeliveryFailed: true, outbox.ReasonDeserializationFailed: true,
			outbox.ReasonDuplicateEvent: true, outbox.ReasonHandlerMissing: true, outbox.ReasonHandlerTimeout: true,
			deadletter.JobTimeout: false, deadletter.JobMaxRetries: false},
		deadletter.SourceJob: {outbox.ReasonHandlerMissing: true, outbox.ReasonHandlerTimeout: false,
			outbox.ReasonDuplicateEvent: false},
	} {
		for reason, allowed := range reasons {
			j := failedJob()
			j.Source, j.Reason = source, reason
			_, err := deadletter.Add(t.Context(), acceptor{}, j)
			var refused *deadletter.ReasonError
			if (err == nil) != allowed || (err != nil) != errors.As(err, &refused) || refused != nil &&
				(refused.Reason != reason || refused.Source != source || !errors.Is(err, deadletter.ErrInvalidJob)) {
				t.Errorf("%s %s: %v, want allowed %t", source, reason, err, allowed)
			}
		}
	}
}

// clearing deletes nothing and records how many letters each page may have.
type clearing struct {
	deadletter.Store
	limits []int
}

func (c *clearing) PurgePage(_ context.Context, _ deadletter.Purge, _ deadletter.Operator, limit int) (int, error) {
	c.limits = append(c.limits, limit)
	return max(0, 3-len(c.limits)), nil
}

func TestPurgeDeletesAtMost1000LettersPerTransaction(t *testing.T) {
	t.Parallel()
	var c clearing
	n, err := deadletter.Purge{}.Run(t.Context(), &c, deadletter.Operator{Actor: "test"})
	if err != nil || n != 3 || !slices.Equal(c.limits, []int{1000, 1000, 1000}) {
		t.Errorf("deleted %d in pages of %v, error %v, want 3 in pages of at most 1000", n, c.limits, err)
	}
}
