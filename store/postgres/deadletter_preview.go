package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/deadletter"
)

// Preview says what a replay of a selection would do, and changes nothing.
type Preview struct {
	Letters int            `json:"letters"`
	Tables  []PreviewTable `json:"tables"`
	// OutsideWindow is how many of them are older than the sink's duplicate window.
	OutsideWindow int `json:"outside_window"`
}

// PreviewTable is one table's part of a preview.
type PreviewTable struct {
	Table   string `json:"table"` // "" for jobs
	Letters int    `json:"letters"`
	Stuck   int    `json:"stuck"` // letters that cannot be put back now
	// Overtaken keys had a later event delivered. Racing keys have a later one that waits to be delivered: it can go first if a relay has read it
	// already. LeftBehind keys have an earlier letter that is not among those chosen. What retention has removed is not seen.
	Overtaken  Keys `json:"overtaken"`
	Racing     Keys `json:"racing"`
	LeftBehind Keys `json:"left_behind"`
}

// Keys counts keys and names the first ten.
type Keys struct {
	Count int      `json:"count"`
	First []string `json:"first,omitempty"`
}

type chosenTable struct {
	Source       deadletter.Source
	Table        string
	Letters, Old int
}

// Count returns how many letters a selection takes.
func (d *DeadLetters) Count(ctx context.Context, s deadletter.Selection) (n int, err error) {
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
func (d *DeadLetters) Preview(ctx context.Context, s deadletter.Selection, window time.Duration) (p Preview, err error) {
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
			part := PreviewTable{Table: f.Table, Letters: f.Letters, Stuck: f.Letters}
			if t, known := d.tables[f.Table]; known && d.visible(t, s.Tenant) {
				if err := part.read(ctx, tx, t.query(q)); err != nil {
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
		return Preview{}, fmt.Errorf("preview replay: %w", err)
	}
	return p, nil
}

func (p *PreviewTable) read(ctx context.Context, tx pgx.Tx, q letterQuery) error {
	sql, args, err := q.render("dlq_order")
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, sql, args...).Scan(&p.Stuck, &p.Overtaken.Count, &p.Overtaken.First, &p.Racing.Count, &p.Racing.First,
		&p.LeftBehind.Count, &p.LeftBehind.First)
}

// visible tells whether the rows of a table can be seen, as the tenant if one is named.
func (d *DeadLetters) visible(t deadTable, tenant string) bool {
	return !t.hidden || d.hidden && tenant != ""
}
