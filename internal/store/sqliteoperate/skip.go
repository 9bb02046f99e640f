package sqliteoperate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Undelivered implements operate.Browser.
func (b *Browser) Undelivered(ctx context.Context, s operate.Selection) (n int, err error) {
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
	q := &selectionQuery{Layout: b.quoted, S: s}
	text, err := t.Statement("events_undelivered", q)
	if err != nil {
		return 0, err
	}
	if err := b.db.Reads().QueryRowContext(ctx, text, q.Args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count undelivered events of %s: %w", b.layout.Name(), sqlitefile.Explain(err))
	}
	return n, nil
}

// SkipPage implements operate.Browser. The rows die as in a relay's settle, but nobody's lease is asked for. A relay
// that has claimed them settles rows that are not undelivered any more, and changes nothing.
func (b *Browser) SkipPage(ctx context.Context, s operate.Selection, by operate.Skip, limit int) (n int, err error) {
	if s.None() {
		return 0, nil
	}
	if _, err := b.query(operate.Filter{Tenant: s.Tenant, Key: s.Key}); err != nil {
		return 0, err
	}
	columns, err := file(b.db).CheckTable(ctx, b.layout.Table, sqltable.Names(b.layout))
	if err != nil {
		return 0, err
	}
	kept := sqlitetable.KeptColumns(columns, b.layout.Payload)
	err = sqlitefile.InTx(ctx, b.db, func(tx *sql.Tx) error {
		n, err = b.skip(ctx, tx, kept, s, by, limit)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("skip events of %s: %w", b.layout.Name(), sqlitefile.Explain(err))
	}
	return n, nil
}

func (b *Browser) skip(
	ctx context.Context, tx *sql.Tx, kept []sqltable.Column, s operate.Selection, by operate.Skip, limit int,
) (n int, err error) {
	found, err := b.undelivered(ctx, tx, s, limit)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	deadly, err := b.deadly(ctx, tx, kept)
	if err != nil {
		return 0, err
	}
	run := func(statement string, args ...any) (bool, error) {
		result, err := deadly[statement].ExecContext(ctx, args...)
		if err != nil {
			return false, err
		}
		n, err := result.RowsAffected()
		return n > 0, err
	}
	now, failure := sqlitetime.Stamp(time.Now()), []outbox.Failure{by.Failure()}
	for _, rec := range found {
		o := outbox.Outcome{Record: rec, State: outbox.Dead, Attempts: rec.Attempts, Failures: failure}
		died, err := sqlitetable.Die(ctx, tx, &o, b.layout.Table, now, run)
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
	detail := operate.AuditOf(b.layout)
	detail["run"] = by.Run
	return n, sqlitetable.Audit(ctx, tx, operator, "skip", n, s, detail)
}

// deadNames is what the statements of a row's death are given.
type deadNames struct {
	sqltable.Layout
	Columns []sqltable.Column
}

// deadly compiles the statements of a row's death, until the transaction ends.
func (b *Browser) deadly(
	ctx context.Context, tx *sql.Tx, kept []sqltable.Column,
) (map[string]*sql.Stmt, error) {
	t, err := parseSQL()
	if err != nil {
		return nil, err
	}
	all := map[string]*sql.Stmt{}
	for _, name := range sqlitetable.Deadly {
		text, err := t.Statement(name, deadNames{b.quoted, kept})
		if err != nil {
			return nil, err
		}
		stmt, err := tx.PrepareContext(ctx, text) //nolint:sqlclosecheck // the end of the transaction closes it
		if err != nil {
			return nil, err
		}
		all[name] = stmt
	}
	return all, nil
}

// undelivered returns what a settle needs to know of the rows.
func (b *Browser) undelivered(
	ctx context.Context, tx *sql.Tx, s operate.Selection, limit int,
) (found []*outbox.Record, err error) {
	t, err := parseSQL()
	if err != nil {
		return nil, err
	}
	q := &selectionQuery{Layout: b.quoted, S: s, Limit: limit}
	statement, err := t.Statement("events_skip", q)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, statement, q.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, tenant sqltable.Text
		var attempts sqltable.Number
		var rec outbox.Record
		if err := rows.Scan(&rec.Position, &id, &rec.Generation, &attempts, &tenant); err != nil {
			return nil, err
		}
		rec.ID, _ = sqltable.ParseID(id)
		rec.Attempts, rec.TenantID = int(attempts.N), tenant.S
		found = append(found, &rec)
	}
	return found, rows.Err()
}
