package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
)

// DB is a database with outboxes, as a relay has it. It is safe for concurrent use.
//
// The sessions that Connect makes are tuned for a relay's few statements and do not wait for the
// disk, so no caller gets hold of them. Producers and readers use a pool of their own.
type DB struct {
	outbox.Database // what a Relay asks of it
	pool            *pgxpool.Pool
}

// served is a DB as a Relay asks it.
type served struct{ pool *pgxpool.Pool }

// NewDB returns the database behind a pool of the caller's, for whoever has to make connections
// himself. The relay's settings go with each of its transactions then, and none stays with a
// session. Close closes the pool.
func NewDB(pool *pgxpool.Pool) *DB { return &DB{served{pool}, pool} }

// Close ends the sessions. It waits for those in use.
func (d *DB) Close() { d.pool.Close() }

// Ping asks whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.pool.Ping(ctx) }

// letterTable is the table of dead letters.
const letterTable = "job_dlq"
