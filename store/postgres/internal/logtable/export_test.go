package logtable

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// SQL are the statements of a store, for the test of their plans.
func (l *Store) SQL() map[string]string {
	return map[string]string{"claim": l.sql.claim, "load": l.sql.load, "settle": l.sql.settle, "note": l.sql.note,
		"dead": l.sql.dead, "compact": l.sql.compact, "backlog": l.sql.backlog}
}

// Era is the last one that was read.
func (l *Store) Era() string { return l.era }

// Subscribed runs subscribed.sql for a part of a log.
func Subscribed(
	ctx context.Context, tx pgx.Tx, layout outbox.Layout, part int16,
) (subscriptions int, acknowledged bool, err error) {
	sql, err := files.Statement("subscribed", pgtable.Quote(layout))
	if err == nil {
		err = tx.QueryRow(ctx, sql, part).Scan(&subscriptions, &acknowledged)
	}
	return subscriptions, acknowledged, err
}
