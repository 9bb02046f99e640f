package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
)

// Owes implements outbox.DeliveryStore.
func (s *store) Owes(ctx context.Context, lanes []int16, sinks []string) (map[int16][]string, error) {
	stmt, err := s.sql.owes.on(ctx, s.db.read)
	if err != nil {
		return nil, fmt.Errorf("ask what %s owes: %w", s.layout.Table, explain(err))
	}
	owed := map[int16][]string{}
	for _, sink := range sinks {
		for _, lane := range lanes {
			var owes bool
			if err := stmt.QueryRowContext(ctx, s.name+"/"+sink, lane).Scan(&owes); err != nil {
				return nil, fmt.Errorf("ask what %s owes: %w", s.layout.Table, explain(err))
			}
			if owes {
				owed[lane] = append(owed[lane], sink)
			}
		}
	}
	return owed, nil
}

// Debtors implements outbox.Database.
func (d served) Debtors(ctx context.Context) (debtors []outbox.Debtor, err error) {
	text, err := files.Statement("debtors", nil)
	if err != nil {
		return nil, err
	}
	err = d.db.snapshot(ctx, func(tx *sql.Tx) error {
		var there bool
		if err := tx.QueryRowContext(ctx, "SELECT count(*) = 1 FROM sqlite_schema WHERE name = 'outbox_deliveries'").
			Scan(&there); err != nil || !there {
			return err
		}
		rows, err := tx.QueryContext(ctx, text, stamp(time.Now()))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var one outbox.Debtor
			if err := rows.Scan(&one.Table, &one.Sink, &one.Served); err != nil {
				return err
			}
			debtors = append(debtors, one)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("look for what sinks owe: %w", explain(err))
	}
	return debtors, nil
}

// LeaseName implements outbox.DeliveryStore.
func (s *store) LeaseName() string { return s.name }

// owe writes down what sinks owe of a record.
func (t *settling) owe(o *outbox.Outcome) error {
	r := o.Record
	var key, orderKey any
	if r.Keyed {
		key, orderKey = r.AggregateID, strconv.FormatInt(r.OrderKey, 10)
	}
	for _, owed := range o.Owed {
		destinations, err := json.Marshal([]string{owed.Destination})
		if err != nil {
			return fmt.Errorf("encode a destination: %w", err)
		}
		var next any
		if owed.RetryIn > 0 {
			next = stamp(t.now.Add(owed.RetryIn))
		}
		var sequence any
		if r.Sequence > 0 {
			sequence = r.Sequence
		}
		if _, err := t.run(&t.sql.settleOwed, r, t.name, owed.Sink, string(destinations), r.Lane, orderKey, r.Topic, key,
			eventrow.OrNull(r.AggregateType), eventrow.OrNull(r.TenantID), eventrow.OrNull(r.Source),
			eventrow.OrNull(r.SchemaID), r.SchemaVersion, sequence, string(r.Payload),
			eventrow.OrNull(string(r.RawMetadata)), known(r.OccurredAt), known(r.WrittenAt), owed.Attempts, next,
			eventrow.OrNull(errortext.Fit(owed.Error))); err != nil {
			return err
		}
	}
	return nil
}

// known returns a time as the tables have it, or NULL.
func known(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return stamp(at)
}
