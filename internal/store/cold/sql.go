package cold

import (
	"context"
	"database/sql"
	"errors"

	"github.com/outboxrelay/outbox"
)

// SQL is a Conn of database/sql, or of what is built on it.
type SQL struct{ outbox.SQLTx }

// Query implements Conn.
func (c SQL) Query(ctx context.Context, statement string, args ...any) (Rows, error) {
	rows, err := c.QueryContext(ctx, statement, args...) //nolint:rowserrcheck // whoever asks looks at it
	if err != nil {
		return nil, err
	}
	return sqlRows{rows}, nil
}

// Exec implements Conn.
func (c SQL) Exec(ctx context.Context, statement string, args ...any) (int, error) {
	result, err := c.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// Begun is a Transaction of database/sql.
type Begun struct {
	SQL
	tx *sql.Tx
}

// Of is a transaction of database/sql as a Conn that can be ended.
func Of(tx *sql.Tx) Begun { return Begun{SQL{tx}, tx} }

// Commit implements Transaction.
func (c Begun) Commit(context.Context) error { return c.tx.Commit() }

// Rollback implements Transaction.
func (c Begun) Rollback(context.Context) error {
	if err := c.tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

type sqlRows struct{ *sql.Rows }

func (r sqlRows) Close() { _ = r.Rows.Close() } // Err has said what there was to say
