package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/tables"
)

// retryQuery is what events_retry.sql is given.
type retryQuery struct {
	quotedLayout
	arguments
	W   tables.Waiting
	Now time.Time
}

// RetryNow implements tables.Browser.
func (b *Browser) RetryNow(ctx context.Context, w tables.Waiting, actor, reason string) (n int, err error) {
	if w.None() {
		return 0, nil
	}
	if _, err := b.query(tables.Filter{Tenant: w.Tenant, Key: w.Key}); err != nil {
		return 0, err
	}
	t, err := parseSQL()
	if err != nil {
		return 0, err
	}
	err = b.db.inTx(ctx, func(tx *sql.Tx) error {
		q := &retryQuery{quotedLayout: b.quoted, W: w, Now: time.Now()}
		text, err := t.Statement("events_retry", q)
		if err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx, text, q.args...)
		if err != nil {
			return err
		}
		changed, err := result.RowsAffected()
		if n = int(changed); err != nil || n == 0 {
			return err
		}
		return audit(ctx, tx, deadletter.Operator{Actor: actor, Reason: reason}, "retry", n, w, map[string]any{"table": b.layout.Table})
	})
	if err != nil {
		return 0, fmt.Errorf("retry events of %s: %w", b.layout.Table, explain(err))
	}
	return n, nil
}
