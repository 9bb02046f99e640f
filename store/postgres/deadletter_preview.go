package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/deadletter"
)

type chosenTable struct {
	Source       deadletter.Source
	Table        string
	Letters, Old int
}

// Count returns how many letters a selection takes.
func (d *deadLetters) Count(ctx context.Context, s deadletter.Selection) (n int, err error) {
	q, err := selected(s)
	if err != nil {
		return 0, err
	}
	err = d.inTx(ctx, s.Tenant, pgx.ReadOnly, func(tx pgx.Tx) error {
		found, err := collect[chosenTable](ctx, tx, "dlq_tables", q)
		for _, f := range found {
			n += f.Letters
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// Preview looks at what a replay of the selection would do. window is the sink's duplicate window.
func (d *deadLetters) Preview(
	ctx context.Context, s deadletter.Selection, window time.Duration,
) (p deadletter.Preview, err error) {
	q, err := selected(s)
	if err != nil {
		return p, err
	}
	q.OlderThan = time.Now().Add(-window)
	err = d.inTx(ctx, s.Tenant, pgx.ReadOnly, func(tx pgx.Tx) error {
		found, err := collect[chosenTable](ctx, tx, "dlq_tables", q)
		if err != nil {
			return err
		}
		for _, f := range found {
			p.Letters += f.Letters
			p.OutsideWindow += f.Old
			part := deadletter.PreviewTable{Table: f.Table, Letters: f.Letters, Stuck: f.Letters}
			if t, known := d.tables[f.Table]; known && d.visible(t, s.Tenant) {
				if err := readOrder(ctx, tx, &part, t.query(q)); err != nil {
					return fmt.Errorf("look into %s: %w", f.Table, err)
				}
			} else if f.Source == deadletter.SourceJob && d.jobs != nil {
				part.Stuck = 0
			}
			p.Tables = append(p.Tables, part)
		}
		return nil
	})
	if err != nil {
		return deadletter.Preview{}, fmt.Errorf("preview replay: %w", err)
	}
	return p, nil
}

func readOrder(ctx context.Context, tx pgx.Tx, p *deadletter.PreviewTable, q letterQuery) error {
	sql, args, err := q.render("dlq_order")
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, sql, args...).Scan(&p.Stuck, &p.Overtaken.Count, &p.Overtaken.First, &p.Racing.Count,
		&p.Racing.First,
		&p.LeftBehind.Count, &p.LeftBehind.First)
}

// visible tells whether the rows of a table can be seen, as the tenant if one is named.
func (d *deadLetters) visible(t deadTable, tenant string) bool {
	return !t.hidden || d.hidden && tenant != ""
}
