package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/tables"
)

// Undelivered implements tables.Browser.
func (b *Browser) Undelivered(ctx context.Context, s tables.Selection) (n int, err error) {
	if s.None() {
		return 0, nil
	}
	if _, err := b.query(tables.Filter{Tenant: s.Tenant, Key: s.Key}); err != nil {
		return 0, err
	}
	t, err := parseSQL()
	if err != nil {
		return 0, err
	}
	q := &selectionQuery{quotedLayout: b.quoted, S: s}
	text, err := t.Statement("events_undelivered", q)
	if err != nil {
		return 0, err
	}
	if err := b.db.read.QueryRowContext(ctx, text, q.args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count undelivered events of %s: %w", b.layout.Table, explain(err))
	}
	return n, nil
}

// SkipPage implements tables.Browser. The rows die as in a relay's settle, but nobody's lease is asked for: whoever has
// claimed them settles rows that are not undelivered any more, and changes nothing.
func (b *Browser) SkipPage(ctx context.Context, s tables.Selection, by tables.Skip, limit int) (n int, err error) {
	if s.None() {
		return 0, nil
	}
	if _, err := b.query(tables.Filter{Tenant: s.Tenant, Key: s.Key}); err != nil {
		return 0, err
	}
	store := &store{db: b.db, layout: b.layout}
	columns, err := checkTable(ctx, b.db, b.layout.Table, columnNames(b.layout))
	if err != nil {
		return 0, err
	}
	names := tableNames{quotedLayout: b.quoted, Columns: quotedColumns(columns, b.layout.Payload)}
	if err := store.sql.prepare(names); err != nil {
		return 0, err
	}
	defer store.sql.close()
	// Before the transaction, which takes the one connection.
	if err := store.sql.compileDead(ctx, b.db.write); err != nil {
		return 0, err
	}
	err = b.db.InTx(ctx, func(tx *sql.Tx) error {
		n, err = b.skip(ctx, tx, store, s, by, limit)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("skip events of %s: %w", b.layout.Table, explain(err))
	}
	return n, nil
}

func (b *Browser) skip(
	ctx context.Context, tx *sql.Tx, store *store, s tables.Selection, by tables.Skip, limit int,
) (n int, err error) {
	found, err := b.undelivered(ctx, tx, s, limit)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	now := time.Now()
	t := settling{store: store, ctx: ctx, tx: tx, now: now, stamp: stamp(now)}
	failure := []outbox.Failure{by.Failure()}
	for _, rec := range found {
		died, err := t.dead(&outbox.Outcome{Record: rec, State: outbox.Dead, Attempts: rec.Attempts, Failures: failure})
		if err != nil {
			return 0, fmt.Errorf("event %s: %w", rec.ID, err)
		}
		if died {
			n++
		}
	}
	if n != len(found) { // nobody else writes meanwhile
		return 0, fmt.Errorf("%d of %d rows died", n, len(found))
	}
	operator := deadletter.Operator{Actor: by.Actor, Reason: by.Reason}
	return n, audit(ctx, tx, operator, "skip", n, s, map[string]any{"table": b.layout.Table, "run": by.Run})
}

// undelivered returns what a settle needs to know of the rows.
func (b *Browser) undelivered(
	ctx context.Context, tx *sql.Tx, s tables.Selection, limit int,
) (found []*outbox.Record, err error) {
	t, err := parseSQL()
	if err != nil {
		return nil, err
	}
	q := &selectionQuery{quotedLayout: b.quoted, S: s, Limit: limit}
	statement, err := t.Statement("events_skip", q)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, statement, q.args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, tenant text
		var attempts number
		var rec outbox.Record
		if err := rows.Scan(&rec.Position, &id, &rec.Generation, &attempts, &tenant); err != nil {
			return nil, err
		}
		rec.ID, _ = parseID(id)
		rec.Attempts, rec.TenantID = int(attempts.n), tenant.s
		found = append(found, &rec)
	}
	return found, rows.Err()
}
