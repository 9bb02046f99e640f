package sqliteoperate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// selectionQuery is what events_retry.sql, events_undelivered.sql and events_skip.sql are given.
type selectionQuery struct {
	sqltable.Layout
	sqlitetable.Arguments
	S     operate.Selection
	Now   time.Time
	Limit int
}

// RetryNow implements operate.Browser.
func (b *Browser) RetryNow(ctx context.Context, s operate.Selection, actor, reason string) (n int, err error) {
	if s.None() {
		return 0, nil
	}
	if _, err := b.query(operate.Filter{Tenant: s.Tenant, Key: s.Key}); err != nil {
		return 0, err
	}
	t, err := parseSQL()
	if err != nil {
		return 0, err
	}
	err = sqlitefile.InTx(ctx, b.db, func(tx *sql.Tx) error {
		q := &selectionQuery{Layout: b.quoted, S: s, Now: time.Now()}
		text, err := t.Statement("events_retry", q)
		if err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx, text, q.Args...)
		if err != nil {
			return err
		}
		changed, err := result.RowsAffected()
		if n = int(changed); err != nil || n == 0 {
			return err
		}
		return sqlitetable.Audit(ctx, tx, deadletter.Operator{Actor: actor, Reason: reason}, "retry", n, s,
			operate.AuditOf(b.layout))
	})
	if err != nil {
		return 0, fmt.Errorf("retry events of %s: %w", b.layout.Name(), sqlitefile.Explain(err))
	}
	return n, nil
}
