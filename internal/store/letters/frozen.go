package letters

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
)

// Freeze implements deadletter.Store.
func (d *Store) Freeze(ctx context.Context, s deadletter.Selection, limit int) (all []deadletter.Frozen, err error) {
	q, err := selected(s)
	if err != nil {
		return nil, err
	}
	q.Limit = limit
	err = d.read(ctx, s.Tenant, func(tx *cold.Tx) error {
		all = nil
		return tx.Each(ctx, "dlq_frozen", q, func(rows cold.Rows) error {
			var one deadletter.Frozen
			err := rows.Scan(&one.ID, &one.Of)
			all = append(all, one)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list dead letters to replay: %w", err)
	}
	return all, nil
}

// Became implements deadletter.Store.
func (d *Store) Became(ctx context.Context, ids []uuid.UUID, tenant string) (sum deadletter.Became, err error) {
	err = d.read(ctx, tenant, func(tx *cold.Tx) error {
		sum = deadletter.Became{Letters: len(ids)}
		tables, err := chosen(ctx, tx, (&Query{IDs: ids, State: string(deadletter.StateReplayed)}).filled())
		if err != nil {
			return err
		}
		for _, of := range tables {
			t, known := d.tables[of.table]
			if !known || !t.layout.KeepsState() || !d.visible(t, tenant) {
				continue
			}
			var one deadletter.Became
			err := tx.One(ctx, "dlq_became", t.query(Query{IDs: ids}), &one.Waiting, &one.Failing, &one.Dead)
			if err != nil {
				return err
			}
			sum.Waiting += one.Waiting
			sum.Failing += one.Failing
			sum.Dead += one.Dead
		}
		return nil
	})
	if err != nil {
		return deadletter.Became{}, fmt.Errorf("ask what became of replayed letters: %w", err)
	}
	return sum, nil
}
