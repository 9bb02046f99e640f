package letters

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
)

// change runs a statement that changes letters, and records it if it changed any.
func change(
	ctx context.Context, tx *cold.Tx, name string, q *Query, by deadletter.Operator, a cold.Action,
) (n int, err error) {
	n, err = tx.Change(ctx, name, q)
	if err != nil || n == 0 {
		return 0, err
	}
	a.Actor, a.Reason, a.Rows = by.Actor, by.Reason, n
	return n, tx.Record(ctx, a)
}

// DiscardPage implements deadletter.Store.
func (d *Store) DiscardPage(
	ctx context.Context, s deadletter.Selection, by deadletter.Operator, limit int,
) (n int, err error) {
	s.Discarded = false // once is enough
	q, err := selected(s)
	if err != nil {
		return 0, err
	}
	q.Limit, q.Reason, q.Now = limit, by.Reason, time.Now()
	err = d.write(ctx, s.Tenant, func(tx *cold.Tx) (err error) {
		n, err = change(ctx, tx, "dlq_discard", q, by, cold.Action{Action: "discard", Filter: recorded(s)})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("discard dead letters: %w", err)
	}
	return n, nil
}

// older are the queries of a purge: one for each index that serves it.
func older(p deadletter.Purge, limit int) []Query {
	q := Query{F: deadletter.Filter{Tenant: p.Tenant}, Cut: time.Now().Add(-p.OlderThan), Limit: limit,
		Age: p.OlderThan.Microseconds()}
	q.State, q.Since = string(deadletter.StateReplayed), "replayed_at"
	all := []Query{q}
	if p.Discarded {
		q.State, q.Since = string(deadletter.StateDiscarded), "discarded_at"
		all = append(all, q)
	}
	return all
}

// PurgePage implements deadletter.Store.
func (d *Store) PurgePage(
	ctx context.Context, p deadletter.Purge, by deadletter.Operator, limit int,
) (n int, err error) {
	for _, q := range older(p, limit) {
		if n > 0 {
			break
		}
		err = d.write(ctx, p.Tenant, func(tx *cold.Tx) (err error) {
			n, err = change(ctx, tx, "dlq_purge", &q, by,
				cold.Action{Action: "purge", Filter: p, Detail: map[string]any{"state": q.State}})
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("purge dead letters: %w", err)
		}
	}
	return n, nil
}

// Purgeable counts what a purge would delete.
func (d *Store) Purgeable(ctx context.Context, p deadletter.Purge) (n int, err error) {
	err = d.read(ctx, p.Tenant, func(tx *cold.Tx) error {
		for _, q := range older(p, 0) {
			var part int
			if err := tx.One(ctx, "dlq_purgeable", &q, &part); err != nil {
				return err
			}
			n += part
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("count dead letters to purge: %w", err)
	}
	return n, nil
}

// CollectPage implements deadletter.Store. The role needs INSERT on job_dlq and apps beside what it
// reads with; with one that sees one tenant at a time it is an outbox.ErrRowsHidden.
func (d *Store) CollectPage(
	ctx context.Context, table string, by deadletter.Operator, limit int,
) (n int, err error) {
	if table, err = d.db.Lettered(ctx, table); err != nil {
		return 0, err
	}
	t, known := d.tables[table]
	if !known || t.layout.Status == "" {
		return 0, nil // a table that is not there has no dead rows, and of one without a status they left
	}
	q := t.query(Query{Limit: limit, Now: time.Now(), DefaultTenant: eventrow.DefaultTenant})
	err = d.write(ctx, "", func(tx *cold.Tx) (err error) {
		if err := tx.Each(ctx, "dlq_collect_turn", q, func(cold.Rows) error { return nil }); err != nil {
			return err
		}
		if t.layout.App == "" {
			if _, err := tx.Change(ctx, "dlq_collect_apps", q); err != nil {
				return err
			}
		}
		n, err = change(ctx, tx, "dlq_collect", q, by,
			cold.Action{Action: "collect", Filter: deadletter.Filter{Table: table}})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("collect dead letters of %s: %w", table, err)
	}
	return n, nil
}
