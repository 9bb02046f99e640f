package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
)

// Preview looks at what a replay of the selection would do. window is the sink's duplicate window.
func (d *deadLetters) Preview(
	ctx context.Context, s deadletter.Selection, window time.Duration,
) (p deadletter.Preview, err error) {
	q, err := selected(s)
	if err != nil {
		return p, err
	}
	err = d.db.snapshot(ctx, func(tx *sql.Tx) error {
		found, err := q.chosen(ctx, tx, time.Now().Add(-window))
		if err != nil {
			return err
		}
		for _, f := range found {
			p.Letters += f.letters
			p.OutsideWindow += f.old
			part := deadletter.PreviewTable{Table: f.table, Letters: f.letters, Stuck: f.letters}
			if t, known := d.tables[f.table]; known {
				if err := readOrder(ctx, tx, &part, t.query(*q)); err != nil {
					return fmt.Errorf("look into %s: %w", f.table, err)
				}
			} else if f.source == deadletter.SourceJob && d.jobs != nil {
				part.Stuck = 0
			}
			p.Tables = append(p.Tables, part)
		}
		return nil
	})
	if err != nil {
		return deadletter.Preview{}, fmt.Errorf("preview replay: %w", explain(err))
	}
	return p, nil
}

func readOrder(ctx context.Context, tx *sql.Tx, p *deadletter.PreviewTable, q *letterQuery) error {
	return q.each(ctx, tx, "dlq_order", func(rows *sql.Rows) error {
		var overtaken, racing, behind string
		if err := rows.Scan(&p.Stuck, &p.Overtaken.Count, &overtaken, &p.Racing.Count, &racing, &p.LeftBehind.Count,
			&behind); err != nil {
			return err
		}
		for keys, text := range map[*deadletter.Keys]string{&p.Overtaken: overtaken, &p.Racing: racing,
			&p.LeftBehind: behind} {
			if err := json.Unmarshal([]byte(text), &keys.First); err != nil {
				return fmt.Errorf("read names of keys: %w", err)
			}
		}
		return nil
	})
}
