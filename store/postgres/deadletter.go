package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/letters"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
)

// DeadLettersConfig says where letters may be put back. The zero value is enough to look at them.
type DeadLettersConfig struct {
	// Layouts are of the tables whose letters can be replayed. outbox_deliveries, which has those
	// of routed tables and of logs, need not be among them. A table that does not exist is passed
	// over: its letters are skipped.
	Layouts []outbox.Layout
	// ReplayJob gives a job back to its runner inside tx, in which the letter is marked as replayed
	// too: both happen or neither. An error, whose text the operator is shown, leaves this letter
	// as it is, undoes what was done in tx for it, and does not stop the others. Where it is nil,
	// the letters of jobs are skipped.
	ReplayJob func(ctx context.Context, tx pgx.Tx, letter deadletter.Letter) error
}

// OpenDeadLetters returns the dead letters of a database, the table job_dlq, after checking that
// its tables fit. pool should not be from Connect, whose sessions are made for relays. A table that
// is older than this program needs is an *outbox.SchemaError. The store is safe for concurrent use.
func OpenDeadLetters(ctx context.Context, pool *pgxpool.Pool, cfg DeadLettersConfig) (deadletter.Store, error) {
	var jobs func(context.Context, *cold.Tx, deadletter.Letter) error
	if cfg.ReplayJob != nil {
		jobs = func(ctx context.Context, tx *cold.Tx, letter deadletter.Letter) error {
			return cfg.ReplayJob(ctx, pgcold.Tx(tx), letter)
		}
	}
	return letters.Open(ctx, pgcold.DB{Pool: pool}, cfg.Layouts, jobs)
}

// queryer is a pgx.Tx, a *pgxpool.Pool or a *pgx.Conn.
type queryer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// NewJobLetters returns what keeps the letters of jobs, and of events that consumers give up, in
// job_dlq:
//
//	deadletter.Add(ctx, postgres.NewJobLetters(tx), job)
//
// With a transaction the letter is part of it, with a pool it is stored at once. The role needs
// INSERT and SELECT on job_dlq and apps, as outbox_relay has; without a policy for all tenants, the
// transaction must speak for the job's (app.current_tenant).
func NewJobLetters(db queryer) deadletter.Recorder {
	return letters.NewRecorder(pgcold.DB{}, pgcold.Conn{Querier: db})
}
