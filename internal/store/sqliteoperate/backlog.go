package sqliteoperate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
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
	if err != nil {
		return found, err
	}
	t, err := parseSQL()
	if err != nil {
		return found, err
	}
	text, err := t.Statement("backlog_by", backlogBy{b.quoted, q.By == "topic"})
	if err != nil {
		return found, err
	}
	err = file(b.db).Snapshot(ctx, func(tx *sql.Tx) error {
		now := time.Now()
		rows, err := tx.QueryContext(ctx, text, q.Shares, q.Count)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var s operate.BacklogShare
			var written, id sqltable.Text
			if err := rows.Scan(&s.Value, &s.Waiting, &written, &id, &found.Counted, &found.Total); err != nil {
				return err
			}
			event, _ := sqltable.ParseID(id)
			found.Add(s, uuid7.Written(written.Moment(), event), now)
		}
		return rows.Err()
	})
	if err != nil {
		return operate.Backlog{}, fmt.Errorf("count undelivered events of %s by %s: %w", b.layout.Table, q.By,
			sqlitefile.Explain(err))
	}
	found.Bounded = found.Counted >= q.Count
	return found, nil
}
