package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/pgschema"
	"github.com/outboxrelay/outbox/internal/retention"
)

// DB is a database with outboxes, as a relay has it. It is safe for concurrent use.
//
// The sessions that Connect makes are tuned for a relay's few statements and do not wait for the disk, so no caller
// gets hold of them. Producers and readers use a pool of their own.
type DB struct {
	outbox.Database // what a Relay asks of it
	pool            *pgxpool.Pool
}

// served is a DB as a Relay asks it.
type served struct{ pool *pgxpool.Pool }

// NewDB returns the database behind a pool of the caller's, for whoever has to make connections himself. The relay's
// settings go with each of its transactions then, and none stays with a session. Close closes the pool.
func NewDB(pool *pgxpool.Pool) *DB { return &DB{served{pool}, pool} }

// Close ends the sessions. It waits for those in use.
func (d *DB) Close() { d.pool.Close() }

// Ping asks whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.pool.Ping(ctx) }

// OpenTable implements outbox.Database. It checks that the table fits the layout, and that this role sees its rows.
func (d served) OpenTable(ctx context.Context, layout outbox.Layout) (outbox.Store, error) {
	s, err := openTable(ctx, d.pool, layout)
	if err != nil {
		return nil, lasting(err)
	}
	if !layout.IsLog() {
		return s, nil
	}
	log, err := openLog(ctx, s)
	if err != nil {
		return nil, lasting(err)
	}
	return log, nil
}

// Retain implements outbox.Database with package retention.
func (d served) Retain(ctx context.Context, layout outbox.Layout, r outbox.Retention) error {
	if layout.IsLog() {
		return d.retainLog(ctx, layout, r)
	}
	return retention.Serve(ctx, layout.Table, r, func(ctx context.Context) (retention.Store, error) {
		return openRetention(ctx, d.pool, layout)
	})
}

// RetainLetters implements outbox.Database.
func (d served) RetainLetters(ctx context.Context, r outbox.Retention) error {
	return retention.Serve(ctx, letterTable, r, func(ctx context.Context) (retention.Store, error) {
		return openRetention(ctx, d.pool, retention.Letters())
	})
}

// lasting marks what waiting does not cure as outbox.Permanent.
func lasting(err error) error {
	if pgschema.Passes(err) {
		return err
	}
	return outbox.Permanent(err)
}
