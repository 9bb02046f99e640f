package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/tables"
)

// RetryNow implements tables.Browser. It needs UPDATE on the time of the next attempt, and INSERT on outbox_audit.
func (b *Browser) RetryNow(ctx context.Context, w tables.Waiting, actor, reason string) (n int, err error) {
	if w.None() {
		return 0, nil
	}
	if _, err := b.check(tables.Filter{Tenant: w.Tenant, Key: w.Key}); err != nil {
		return 0, err
	}
	var ids []string // as texts, of which nil is NULL
	for _, id := range w.IDs {
		ids = append(ids, id.String())
	}
	err = b.inTx(ctx, w.Tenant, pgx.ReadWrite, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, b.sql.retry, ids, null(w.Tenant), null(w.Key), null(w.Topic))
		if err != nil {
			return err
		}
		if n = int(tag.RowsAffected()); n == 0 {
			return nil
		}
		return audit(ctx, tx, deadletter.Operator{Actor: actor, Reason: reason}, "retry", n, w, map[string]any{"table": b.layout.Table})
	})
	if err != nil {
		return 0, fmt.Errorf("retry events of %s: %w", b.layout.Table, err)
	}
	return n, nil
}
