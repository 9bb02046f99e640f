package postgres

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/retention"
)

// DB is a database with outboxes, as a relay has it. It is safe for concurrent use.
//
// The sessions that Connect makes are tuned for a relay's few statements and do not wait for the disk, so no caller
// gets hold of them: producers and readers use a pool of their own.
type DB struct{ pool *pgxpool.Pool }

var _ outbox.Database = (*DB)(nil)

// NewDB returns the database behind a pool of the caller's, for whoever has to make connections himself. The relay's
// settings go with each of its transactions then, and none stays with a session. Close closes the pool.
func NewDB(pool *pgxpool.Pool) *DB { return &DB{pool} }

// Close ends the sessions. It waits for those in use.
func (d *DB) Close() { d.pool.Close() }

// Ping asks whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.pool.Ping(ctx) }

// OpenTable implements outbox.Database. It checks that the table fits the layout, and that this role sees its rows.
func (d *DB) OpenTable(ctx context.Context, layout outbox.Layout) (outbox.Store, error) {
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
func (d *DB) Retain(ctx context.Context, layout outbox.Layout, r outbox.Retention) error {
	if layout.IsLog() {
		return d.retainLog(ctx, layout, r)
	}
	return retention.Serve(ctx, layout.Table, r, func(ctx context.Context) (retention.Store, error) {
		return d.OpenRetention(ctx, layout)
	})
}

// RetainLetters implements outbox.Database.
func (d *DB) RetainLetters(ctx context.Context, r outbox.Retention) error {
	return retention.Serve(ctx, letterTable, r, func(ctx context.Context) (retention.Store, error) {
		return d.OpenLetterRetention(ctx)
	})
}

// lasting marks what waiting does not cure as outbox.Permanent.
func lasting(err error) error {
	if Passes(err) {
		return err
	}
	return outbox.Permanent(err)
}

// Passes tells whether a failure to open something can go away while one waits: a server that is down, starting, or out
// of connections, and not a wrong password, an untrusted certificate or a missing table, which need somebody to act.
func Passes(err error) bool {
	var certificate *tls.CertificateVerificationError
	var schema *outbox.SchemaError
	var server *pgconn.PgError
	switch {
	case errors.As(err, &certificate), errors.As(err, &schema), errors.Is(err, ErrStatementMode),
		errors.Is(err, outbox.ErrRowsHidden), errors.Is(err, outbox.ErrNotAllowed):
		return false
	case errors.As(err, &server):
		switch server.Code[:2] {
		case "08", "40", "53", "55", "57": // connection, rolled back, resources, locked, operator intervention
			return true
		}
		return false
	}
	return true
}
