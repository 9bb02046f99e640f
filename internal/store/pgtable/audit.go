package pgtable

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/deadletter"
)

// Audit writes the record of an operator's action into its transaction.
func Audit(
	ctx context.Context, tx pgx.Tx, by deadletter.Operator, action string, letters int, filter, detail any,
) error {
	sql, err := plain("audit")
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sql, by.Actor, action, letters, filter, by.Reason, detail); err != nil {
		return fmt.Errorf("record action %s: %w", action, err)
	}
	return nil
}
