package sqlite

import (
	"context"
	"database/sql"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/retention"
	"github.com/outboxrelay/outbox/internal/sqlitefile"
)

// served is a DB as a Relay asks it.
type served struct{ db *DB }

// OpenTable implements outbox.Database. It checks that the file is whole and that the table fits the layout. A file
// that can only be read is ErrReadOnly.
func (d served) OpenTable(ctx context.Context, layout outbox.Layout) (outbox.Store, error) {
	s, err := openTable(ctx, d.db, layout)
	if err != nil {
		if !sqlitefile.Passes(err) {
			err = outbox.Permanent(err)
		}
		return nil, err
	}
	return s, nil
}

// Retain implements outbox.Database with package retention.
func (d served) Retain(ctx context.Context, layout outbox.Layout, r outbox.Retention) error {
	return retention.Serve(ctx, layout.Table, r, func(ctx context.Context) (retention.Store, error) {
		return openRetention(ctx, d.db, layout)
	})
}

// RetainLetters implements outbox.Database.
func (d served) RetainLetters(ctx context.Context, r outbox.Retention) error {
	return retention.Serve(ctx, letterTable, r, func(ctx context.Context) (retention.Store, error) {
		return openRetention(ctx, d.db, retention.Letters())
	})
}

// explain is sqlitefile.Explain.
func explain(err error) error { return sqlitefile.Explain(err) }

// inTx runs fn in a transaction of Begin, and commits it.
func (d *DB) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	return sqlitefile.InTx(ctx, d, fn)
}

// snapshot runs fn in a transaction that only reads, and sees one state of the file.
func (d *DB) snapshot(ctx context.Context, fn func(*sql.Tx) error) error {
	return d.file().Snapshot(ctx, fn)
}
