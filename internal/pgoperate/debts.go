package pgoperate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/operate"
	"github.com/outboxrelay/outbox/internal/pgschema"
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
