package pgoperate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Debts returns what sinks of tables with routes have not taken. It answers with a *outbox.SchemaError where the
// database has no table of deliveries yet.
func Debts(ctx context.Context, pool *pgxpool.Pool) ([]operate.Debt, error) {
	if err := pgschema.CheckTable(ctx, pool, "outbox_deliveries", nil); err != nil {
		return nil, err
	}
	hidden, err := pgschema.RowsHidden(ctx, pool, "job_dlq")
	if err != nil {
		return nil, err
	}
	sql, err := plain("debts")
	if err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, sql, !hidden)
	if err != nil {
		return nil, fmt.Errorf("count what sinks owe: %w", err)
	}
	debts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[operate.Debt])
	if err != nil {
		return nil, fmt.Errorf("count what sinks owe: %w", err)
	}
	return debts, nil
}

// MoveDebt gives at most limit of the deliveries that a sink owes to another one, the oldest first, and records it. It
// needs the rights of outbox_operator. A relay that serves the sink could be publishing one of them.
func MoveDebt(
	ctx context.Context, pool *pgxpool.Pool, m operate.DebtMove, limit int,
) (done operate.DebtMoved, err error) {
	sql, err := plain("debts_move")
	if err != nil {
		return done, err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, sql, m.Table, m.Sink, m.To, limit).Scan(&done.Moved, &done.Had); err != nil {
			return err
		}
		if done == (operate.DebtMoved{}) {
			return nil
		}
		by := deadletter.Operator{Actor: m.Actor, Reason: m.Reason}
		return pgtable.Audit(ctx, tx, by, "move", done.Moved+done.Had, operate.Selection{All: true}, m.Detail(done))
	})
	if err != nil {
		return operate.DebtMoved{}, fmt.Errorf("move what %s owes of %s: %w", m.Sink, m.Table, err)
	}
	return done, nil
}

// PendingLetters counts dead letters that are pending, up to limit of all.
func PendingLetters(ctx context.Context, pool *pgxpool.Pool, limit int) ([]operate.Pending, error) {
	sql, err := plain("letters_pending")
	if err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, sql, limit)
	if err != nil {
		return nil, fmt.Errorf("count pending letters: %w", err)
	}
	pending, err := pgx.CollectRows(rows, pgx.RowToStructByPos[operate.Pending])
	if err != nil {
		return nil, fmt.Errorf("count pending letters: %w", err)
	}
	return pending, nil
}
