package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// change runs a statement that changes letters, and records it if it changed any.
func change(ctx context.Context, tx pgx.Tx, name string, q letterQuery, record func(n int) error) (int, error) {
	sql, args, err := q.render(name)
	if err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, sql, args...)
	if err != nil {
		return 0, err
	}
	n := int(tag.RowsAffected())
	if n == 0 {
		return 0, nil
	}
	return n, record(n)
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
	q.Limit, q.Reason = limit, by.Reason
	err = d.inTx(ctx, s.Tenant, pgx.ReadWrite, func(tx pgx.Tx) (err error) {
		n, err = change(ctx, tx, "dlq_discard", q,
			func(n int) error { return pgtable.Audit(ctx, tx, by, "discard", n, s, nil) })
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("discard dead letters: %w", err)
	}
	return n, nil
}

// purges are the queries of a purge: one for each index that serves it.
func purges(p deadletter.Purge, limit int) []letterQuery {
	q := letterQuery{F: deadletter.Filter{Tenant: p.Tenant}, Age: p.OlderThan.Microseconds(), Limit: limit}
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
	for _, q := range purges(p, limit) {
		if n > 0 {
			break
		}
		err = d.inTx(ctx, p.Tenant, pgx.ReadWrite, func(tx pgx.Tx) (err error) {
			n, err = change(ctx, tx, "dlq_purge", q, func(n int) error {
				return pgtable.Audit(ctx, tx, by, "purge", n, p, map[string]any{"state": q.State})
			})
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("purge dead letters: %w", err)
		}
	}
	return n, nil
}

// Purgeable counts what a purge would delete.
func (d *deadLetters) Purgeable(ctx context.Context, p deadletter.Purge) (n int, err error) {
	err = d.inTx(ctx, p.Tenant, pgx.ReadOnly, func(tx pgx.Tx) error {
		for _, q := range purges(p, 0) {
			sql, args, err := q.render("dlq_purgeable")
			if err != nil {
				return err
			}
			var part int
			if err := tx.QueryRow(ctx, sql, args...).Scan(&part); err != nil {
				return err
			}
			n += part
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("count dead letters to purge: %w", err)
	}
	return n, nil
}

// queryer is a pgx.Tx, a *pgxpool.Pool or a *pgx.Conn.
type queryer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// NewJobLetters returns what keeps the letters of jobs, and of events that consumers give up, in job_dlq:
//
//	deadletter.Record(ctx, postgres.NewJobLetters(tx), job)
//
// With a transaction the letter is part of it, with a pool it is stored at once. The role needs INSERT and SELECT on
// job_dlq and apps, as outbox_relay has; without a policy for all tenants, the transaction must speak for the job's
// (app.current_tenant).
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
	if _, err := j.db.Exec(ctx, apps, []string{tenant}); err != nil {
		return uuid.Nil, fmt.Errorf("make application %s: %w", tenant, err)
	}
	optional := func(id uuid.UUID) *uuid.UUID {
		if id == uuid.Nil {
			return nil
		}
		return &id
	}
	err = j.db.QueryRow(ctx, record, job.ID, tenant, optional(job.UserID), optional(job.RequestID),
		errortext.Fit(job.Type), job.Payload,
		string(job.Reason), job.Attempts, history, string(cmp.Or(job.Source, deadletter.SourceJob))).Scan(&id)
	if err != nil {
		return uuid.Nil, fmt.Errorf("store letter: %w", err)
	}
	return id, nil
}
