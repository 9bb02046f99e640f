package pgoperate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// RetryNow implements operate.Browser. It needs UPDATE on the time of the next attempt, and INSERT on outbox_audit.
func (b *Browser) RetryNow(ctx context.Context, s operate.Selection, actor, reason string) (n int, err error) {
	if s.None() {
		return 0, nil
	}
	if _, err := b.check(operate.Filter{Tenant: s.Tenant, Key: s.Key}); err != nil {
		return 0, err
	}
	err = b.inTx(ctx, s.Tenant, pgx.ReadWrite, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, b.sql.retry, chosen(s)...)
		if err != nil {
			return err
		}
		if n = int(tag.RowsAffected()); n == 0 {
			return nil
		}
		return pgtable.Audit(ctx, tx, deadletter.Operator{Actor: actor, Reason: reason}, "retry", n, s,
			operate.AuditOf(b.layout))
	})
	if err != nil {
		return 0, fmt.Errorf("retry events of %s: %w", b.layout.Name(), err)
	}
	return n, nil
}

// chosen returns the parameters of events_selected (events_retry.sql).
func chosen(s operate.Selection) []any {
	var ids []string // as texts, of which nil is NULL
	for _, id := range s.IDs {
		ids = append(ids, id.String())
	}
	return []any{ids, pgtable.Null(s.Tenant), pgtable.Null(s.Key), pgtable.Like(s.Topic)}
}
