package pgoperate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/operate"
)

// Troubles returns what hinders the relays.
func Troubles(ctx context.Context, pool *pgxpool.Pool) ([]operate.Trouble, error) {
	sql, err := plain("troubles")
	if err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("ask what hinders relays: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t operate.Trouble, err error) {
		var health []byte
		if err := row.Scan(&t.Relay, &t.Of, &t.Since, &health); err != nil {
			return t, err
		}
		return t, t.Tell(health)
	})
	if err != nil {
		return nil, fmt.Errorf("ask what hinders relays: %w", err)
	}
	return all, nil
}
