package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqltx"
)

// busTx is a transaction of either kind. Arguments are texts and integers, which all drivers take alike.
type busTx interface {
	exec(ctx context.Context, statement string, args []any) (int, error)
	query(ctx context.Context, statement string, args []any, row func(scanner) error) error
}

type scanner interface{ Scan(dst ...any) error }

func busTxOf(tx any) (busTx, error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		return pgxBus{tx}, checkTx(tx)
	case outbox.SQLTx:
		open, err := sqltx.Open(tx)
		return sqlBus{open}, err
	}
	return nil, fmt.Errorf("%w: %T is neither a pgx.Tx nor an outbox.SQLTx", outbox.ErrNoTransaction, tx)
}

type pgxBus struct{ pgx.Tx }

func (b pgxBus) exec(ctx context.Context, statement string, args []any) (int, error) {
	tag, err := b.Exec(ctx, statement, args...)
	return int(tag.RowsAffected()), err
}

func (b pgxBus) query(ctx context.Context, statement string, args []any, row func(scanner) error) error {
	rows, err := b.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

type sqlBus struct{ outbox.SQLTx }

func (b sqlBus) exec(ctx context.Context, statement string, args []any) (int, error) {
	result, err := b.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

func (b sqlBus) query(ctx context.Context, statement string, args []any, row func(scanner) error) error {
	rows, err := b.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// changeBus runs a statement of sql/ and returns how many rows it changed.
func changeBus(ctx context.Context, tx any, name string, args ...any) (int, error) {
	b, err := busTxOf(tx)
	if err != nil {
		return 0, err
	}
	statement, err := plain(name)
	if err != nil {
		return 0, err
	}
	return b.exec(ctx, statement, args)
}

// queryBus runs a statement of sql/ and calls row for each row.
func queryBus(ctx context.Context, tx any, name string, row func(scanner) error, args ...any) error {
	b, err := busTxOf(tx)
	if err != nil {
		return err
	}
	statement, err := plain(name)
	if err != nil {
		return err
	}
	return b.query(ctx, statement, args, row)
}
