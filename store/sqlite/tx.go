package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// InTx runs fn in a transaction of Begin, and commits it; it rolls back if fn fails. What fn has read cannot change
// before it commits: nobody else writes meanwhile.
func (d *DB) InTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := d.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", explain(err))
	}
	returned := false
	defer func() {
		if !returned { // fn panics, and an open transaction would hold up every writer
			_ = tx.Rollback()
		}
	}()
	err = fn(tx)
	returned = true
	if err != nil {
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			err = errors.Join(err, fmt.Errorf("roll back: %w", undo))
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", explain(err))
	}
	return nil
}

// snapshot runs fn in a transaction that only reads, and sees one state of the file.
func (d *DB) snapshot(ctx context.Context, fn func(*sql.Tx) error) error {
	return d.file().Snapshot(ctx, fn)
}
