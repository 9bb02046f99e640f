package sqlite

import (
	"context"
	"errors"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/retention"
)

var _ outbox.Database = (*DB)(nil)

// OpenTable implements outbox.Database. It checks that the file is whole and that the table fits the layout. A file
// that can only be read is ErrReadOnly.
func (d *DB) OpenTable(ctx context.Context, layout outbox.Layout) (outbox.Store, error) {
	s, err := openTable(ctx, d, layout)
	if err != nil {
		if !Passes(err) {
			err = outbox.Permanent(err)
		}
		return nil, err
	}
	return s, nil
}

// Retain implements outbox.Database with package retention.
func (d *DB) Retain(ctx context.Context, layout outbox.Layout, r outbox.Retention) error {
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

// Passes tells whether a failure to open something can go away while one waits: another process keeps the file locked.
func Passes(err error) bool {
	var failure *driver.Error
	var schema *outbox.SchemaError
	switch {
	case errors.Is(err, ErrNoFile), errors.Is(err, ErrNotSQLite), errors.Is(err, ErrDamaged),
		errors.Is(err, ErrReadOnly), errors.As(err, &schema):
		return false
	case errors.Is(err, ErrBusy):
		return true
	case errors.As(err, &failure):
		code := failure.Code() & 0xff
		return code == codes.SQLITE_BUSY || code == codes.SQLITE_LOCKED
	}
	return true
}
