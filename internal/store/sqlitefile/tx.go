package sqlitefile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Writer begins transactions that may write: a sqlite.DB.
type Writer interface {
	Begin(ctx context.Context) (*sql.Tx, error)
}

// InTx runs fn in a transaction of db, and commits it; it rolls back if fn fails. What fn has read
// cannot change before it commits: nobody else writes meanwhile.
func InTx(ctx context.Context, db Writer, fn func(*sql.Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", Explain(err))
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
		return fmt.Errorf("commit: %w", Explain(err))
	}
	return nil
}
