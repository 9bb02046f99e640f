package pgmigrations

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// giveBack undoes adoptions that were begun and not finished: those of tables whose file has not been applied. The down
// files do it for the others.
func giveBack(ctx context.Context, conn *pgx.Conn, set string, current uint) (undone []string, err error) {
	a := &adoption{conn: conn, recorded: map[string]map[string]bool{}}
	if err := a.readRecord(ctx); err != nil || len(a.recorded) == 0 {
		return nil, err
	}
	all, err := origins([]string{set})
	if err != nil {
		return nil, err
	}
	for _, o := range slices.Backward(all) {
		if len(a.recorded[o.table]) == 0 || o.version <= current {
			continue
		}
		if err := a.step(ctx, o.table, nil, templated("give_back", o.table)); err != nil {
			return undone, fmt.Errorf("give table %s back: %w", o.table, err)
		}
		undone = append(undone, o.table)
	}
	return undone, nil
}

// Advice says what an operator should do about the tables as they are now, after Up or Down.
func Advice(ctx context.Context, databaseURL string) ([]string, error) {
	conn, _, err := connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("look at row-level security: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, templated("unruled", nil))
	if err != nil {
		return nil, fmt.Errorf("look at row-level security: %w", err)
	}
	shut, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look at row-level security: %w", err)
	}
	var advice []string
	for _, table := range shut {
		advice = append(advice,
			fmt.Sprintf("row-level security of %s is on, and without the policy of outbox_gateway, so a gateway sees none of "+
				"its rows: "+
				"run `outbox migrate roles` after `outbox migrate up`", table))
	}
	return advice, nil
}
