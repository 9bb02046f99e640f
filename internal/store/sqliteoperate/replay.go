package sqliteoperate

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// archivedColumn is a column of a row as the archive has it.
type archivedColumn struct {
	sqltable.Column
	JSON bool
}

// replayQuery is what the templates replay_*.sql are given.
type replayQuery struct {
	sqltable.Layout
	sqlitetable.Arguments
	D         operate.Delivered
	Columns   []archivedColumn
	RawTable  string // as the archive has it
	Positions string // a JSON array
}

func (b *Browser) replayQuery(ctx context.Context, d operate.Delivered) (*replayQuery, error) {
	if _, err := b.query(operate.Filter{Tenant: d.Tenant, Key: d.Key}); err != nil {
		return nil, err
	}
	if err := d.Check(b.layout); err != nil {
		return nil, err
	}
	q := &replayQuery{Layout: b.quoted, D: d, RawTable: b.layout.Table}
	columns, err := file(b.db).StoredColumns(ctx, b.layout)
	if err != nil {
		return nil, err
	}
	isJSON := []string{q.Payload, q.Metadata, q.Destinations, q.DeliveredTo, q.ErrorHistory}
	for _, c := range columns {
		q.Columns = append(q.Columns, archivedColumn{c, slices.Contains(isJSON, c.Name)})
	}
	return q, nil
}

// Replayable implements operate.Replayer.
func (b *Browser) Replayable(
	ctx context.Context, d operate.Delivered,
) (places []operate.Place, until time.Time, err error) {
	until = time.Now()
	if !d.Until.IsZero() && d.Until.Before(until) {
		until = d.Until
	}
	d.Until = until
	q, err := b.replayQuery(ctx, d)
	if err != nil {
		return nil, until, err
	}
	if places, err = b.replayable(ctx, q); err != nil {
		return nil, until, fmt.Errorf("look for delivered events of %s: %w", b.layout.Table, sqlitefile.Explain(err))
	}
	return places, until, nil
}

func (b *Browser) replayable(ctx context.Context, q *replayQuery) (places []operate.Place, err error) {
	t, err := parseSQL()
	if err != nil {
		return nil, err
	}
	statement, err := t.Statement("replay_find", q)
	if err != nil {
		return nil, err
	}
	rows, err := b.db.Reads().QueryContext(ctx, statement, q.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var p operate.Place
		var id sqltable.Text
		if err := rows.Scan(&p.Position, &id, &p.Archived); err != nil {
			return nil, err
		}
		p.ID, _ = sqltable.ParseID(id)
		places = append(places, p)
	}
	return places, rows.Err()
}

// ReplayPage implements operate.Replayer.
func (b *Browser) ReplayPage(ctx context.Context, r operate.Replay, places []operate.Place) (n int, err error) {
	err = sqlitefile.InTx(ctx, b.db, func(tx *sql.Tx) error {
		n = 0
		for _, archived := range []bool{true, false} {
			changed, err := b.putBack(ctx, tx, r.Delivered, places, archived)
			if err != nil {
				return err
			}
			n += changed
		}
		if n == 0 {
			return nil
		}
		return sqlitetable.Audit(ctx, tx, deadletter.Operator{Actor: r.Actor, Reason: r.Reason}, "replay", n, r.Delivered,
			map[string]any{"table": b.layout.Table, "run": r.Run, "delivered": true})
	})
	if err != nil {
		return 0, fmt.Errorf("replay events of %s: %w", b.layout.Table, sqlitefile.Explain(err))
	}
	return n, nil
}

// putBack puts those of places back that are in the archive, or those that are not.
func (b *Browser) putBack(
	ctx context.Context, tx *sql.Tx, d operate.Delivered, places []operate.Place, archived bool,
) (int, error) {
	var positions []int64
	for _, p := range places {
		if p.Archived == archived {
			positions = append(positions, p.Position)
		}
	}
	if len(positions) == 0 {
		return 0, nil
	}
	q, err := b.replayQuery(ctx, d)
	if err != nil {
		return 0, err
	}
	list, err := json.Marshal(positions)
	if err != nil {
		return 0, fmt.Errorf("encode positions: %w", err)
	}
	q.Positions = string(list)
	t, err := parseSQL()
	if err != nil {
		return 0, err
	}
	statement := "replay_revive"
	if archived {
		statement = "replay_insert"
	}
	text, err := t.Statement(statement, q)
	if err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, text, q.Args...)
	if err != nil {
		return 0, err
	}
	changed, err := result.RowsAffected()
	return int(changed), err
}
