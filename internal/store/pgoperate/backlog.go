package pgoperate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// backlogBy is what the template backlog_by is given.
type backlogBy struct {
	sqltable.Layout
	ByTopic bool
}

// Backlog says whose the undelivered events are.
func (b *Browser) Backlog(ctx context.Context, q operate.BacklogQuery) (operate.Backlog, error) {
	found, err := q.NewBacklog(b.layout)
	if found.Hidden = b.hidden; err != nil || b.hidden {
		return found, err
	}
	err = pgx.BeginTxFunc(ctx, b.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return b.backlogBy(ctx, tx, q, &found)
	})
	if err != nil {
		return operate.Backlog{}, fmt.Errorf("count undelivered events of %s by %s: %w", b.layout.Table, q.By, err)
	}
	found.Bounded = found.Counted >= q.Count
	return found, nil
}

func (b *Browser) backlogBy(ctx context.Context, tx pgx.Tx, q operate.BacklogQuery, found *operate.Backlog) error {
	t, err := parseSQL()
	if err != nil {
		return err
	}
	sql, err := t.Statement("backlog_by", backlogBy{Layout: pgtable.Quote(b.layout), ByTopic: q.By == "topic"})
	if err != nil {
		return err
	}
	args := []any{q.Shares, q.Count}
	if b.layout.IsLog() {
		name, err := pgtable.Name(ctx, tx, b.layout.Table)
		if err != nil {
			return err
		}
		args = []any{name, q.Count, outbox.Lanes, q.Shares}
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	var s operate.BacklogShare
	var written *time.Time
	var id uuid.UUID
	var now time.Time
	_, err = pgx.ForEachRow(rows, []any{&s.Value, &s.Waiting, &written, &id, &now, &found.Counted, &found.Total},
		func() error {
			found.Add(s, uuid7.Written(written, id), now)
			return nil
		})
	return err
}
