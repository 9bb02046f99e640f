package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
)

// change runs a statement that changes letters, and records it if it changed any.
func (q *letterQuery) change(ctx context.Context, tx *sql.Tx, name string, record func(n int) error) (int, error) {
	statement, err := q.render(name)
	if err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, statement, q.Args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err != nil || n == 0 {
		return 0, err
	}
	return int(n), record(int(n))
}

// DiscardPage implements deadletter.Store.
func (d *deadLetters) DiscardPage(
	ctx context.Context, s deadletter.Selection, by deadletter.Operator, limit int,
) (n int, err error) {
	s.Discarded = false // once is enough
	q, err := selected(s)
	if err != nil {
		return 0, err
	}
	err = d.db.inTx(ctx, func(tx *sql.Tx) (err error) {
		q.Limit, q.Reason, q.Now = limit, by.Reason, time.Now()
		n, err = q.change(ctx, tx, "dlq_discard",
			func(n int) error { return sqlitetable.Audit(ctx, tx, by, "discard", n, s, nil) })
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("discard dead letters: %w", explain(err))
	}
	return n, nil
}

// olderLetters are the queries of a purge: one for each index that serves it.
func olderLetters(p deadletter.Purge, limit int) []letterQuery {
	q := letterQuery{F: deadletter.Filter{Tenant: p.Tenant}, Cut: time.Now().Add(-p.OlderThan), Limit: limit}
	q.State, q.Since = string(deadletter.StateReplayed), "replayed_at"
	all := []letterQuery{q}
	if p.Discarded {
		q.State, q.Since = string(deadletter.StateDiscarded), "discarded_at"
		all = append(all, q)
	}
	return all
}

// PurgePage implements deadletter.Store.
func (d *deadLetters) PurgePage(
	ctx context.Context, p deadletter.Purge, by deadletter.Operator, limit int,
) (n int, err error) {
	for _, q := range olderLetters(p, limit) {
		if n > 0 {
			break
		}
		err = d.db.inTx(ctx, func(tx *sql.Tx) (err error) {
			n, err = q.change(ctx, tx, "dlq_purge", func(n int) error {
				return sqlitetable.Audit(ctx, tx, by, "purge", n, p, map[string]any{"state": q.State})
			})
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("purge dead letters: %w", explain(err))
		}
	}
	return n, nil
}

// Purgeable counts what a purge would delete.
func (d *deadLetters) Purgeable(ctx context.Context, p deadletter.Purge) (n int, err error) {
	err = d.db.snapshot(ctx, func(tx *sql.Tx) error {
		for _, q := range olderLetters(p, 0) {
			if err := q.each(ctx, tx, "dlq_purgeable", func(rows *sql.Rows) error {
				var part int
				defer func() { n += part }()
				return rows.Scan(&part)
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("count dead letters to purge: %w", explain(err))
	}
	return n, nil
}

// queryer is a *sql.Tx, or DB.Writes() of a DB.
type queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// NewJobLetters returns what keeps the letters of jobs, and of events that consumers give up, in job_dlq:
//
//	deadletter.Record(ctx, sqlite.NewJobLetters(tx), job)
//
// With a transaction the letter is part of it, with DB.Writes() it is stored at once.
func NewJobLetters(db queryer) deadletter.Recorder { return jobLetters{db} }

type jobLetters struct{ db queryer }

// RecordJob implements deadletter.Recorder.
func (j jobLetters) RecordJob(ctx context.Context, job deadletter.Job) (id uuid.UUID, err error) {
	tenant := job.Tenant
	if tenant == "" {
		tenant = eventrow.DefaultTenant
	}
	failures := make([]deadletter.Failure, len(job.Errors))
	for i, f := range job.Errors {
		failures[i] = deadletter.Failure{Error: errortext.Fit(f.Error), Timestamp: f.Timestamp}
	}
	history, err := json.Marshal(failures)
	if err != nil {
		return uuid.Nil, fmt.Errorf("encode errors: %w", err)
	}
	apps, err := plain("settle_apps")
	if err != nil {
		return uuid.Nil, err
	}
	record, err := plain("dlq_record")
	if err != nil {
		return uuid.Nil, err
	}
	recorded, err := plain("dlq_recorded")
	if err != nil {
		return uuid.Nil, err
	}
	fresh, err := outbox.NewID()
	if err != nil {
		return uuid.Nil, err
	}
	if _, err := j.db.ExecContext(ctx, apps, tenant); err != nil {
		return uuid.Nil, fmt.Errorf("make application %s: %w", tenant, explain(err))
	}
	optional := func(id uuid.UUID) any {
		if id == uuid.Nil {
			return nil
		}
		return id.String()
	}
	source := string(cmp.Or(job.Source, deadletter.SourceJob))
	err = j.db.QueryRowContext(ctx, record, fresh.String(), job.ID.String(), tenant, optional(job.UserID),
		optional(job.RequestID), errortext.Fit(job.Type), string(job.Payload),
		string(job.Reason), job.Attempts, string(history), source).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = j.db.QueryRowContext(ctx, recorded, job.ID.String(), job.Attempts, source).Scan(&id)
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("store letter: %w", explain(err))
	}
	return id, nil
}
