package letters

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
)

// Recorder keeps the letters of jobs, and of events that consumers give up. It is a
// deadletter.Recorder.
type Recorder struct {
	db   cold.Database
	conn cold.Conn
}

// NewRecorder returns one on a connection: in a transaction the letter is part of it, else it is
// stored at once.
func NewRecorder(db cold.Database, conn cold.Conn) Recorder { return Recorder{db, conn} }

// jobLetter is what dlq_record.sql is given.
type jobLetter struct {
	deadletter.Job
	Letter        uuid.UUID
	Text, History string
	Body          string
	User, Request *uuid.UUID
	From          string
}

// RecordJob implements deadletter.Recorder.
func (r Recorder) RecordJob(ctx context.Context, job deadletter.Job) (id uuid.UUID, err error) {
	job.Tenant = cmp.Or(job.Tenant, eventrow.DefaultTenant)
	failures := make([]deadletter.Failure, len(job.Errors))
	for i, f := range job.Errors {
		failures[i] = deadletter.Failure{Error: errortext.Fit(f.Error), Timestamp: f.Timestamp}
	}
	history, err := json.Marshal(failures)
	if err != nil {
		return uuid.Nil, fmt.Errorf("encode errors: %w", err)
	}
	letter := jobLetter{Job: job, Text: errortext.Fit(job.Type), History: string(history), Body: string(job.Payload),
		From: string(cmp.Or(job.Source, deadletter.SourceJob))}
	for dst, of := range map[**uuid.UUID]uuid.UUID{&letter.User: job.UserID, &letter.Request: job.RequestID} {
		if of != uuid.Nil {
			*dst = &of
		}
	}
	if letter.Letter, err = outbox.NewID(); err != nil {
		return uuid.Nil, err
	}
	tx := cold.In(r.db, r.conn)
	if _, err := tx.Change(ctx, "dlq_app", letter); err != nil {
		return uuid.Nil, fmt.Errorf("make application %s: %w", job.Tenant, r.db.Explain(err))
	}
	err = tx.One(ctx, "dlq_record", letter, &id)
	if errors.Is(err, cold.ErrNoRow) {
		err = tx.One(ctx, "dlq_recorded", letter, &id)
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("store letter: %w", r.db.Explain(err))
	}
	return id, nil
}
