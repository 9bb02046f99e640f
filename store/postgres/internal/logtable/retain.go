package logtable

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/store/retention"
)

// A log has a fixed number of parts, which are filled one after the other, in a circle. Rows leave
// it only with all of their part, by TRUNCATE. So nobody makes or drops tables at run time, and no
// row is deleted. (docs/adr/0035)

const partCount = 4 // as in the migration

// Retain looks again and again whether a part of a log can be truncated, or the next one be filled,
// until ctx ends. One process does at a time.
func Retain(
	ctx context.Context, pool pooler.Sessions, turns retention.Turns, layout outbox.Layout, r outbox.Retention,
) error {
	return retention.Look(ctx, layout.Table, r, turns, func(ctx context.Context) error {
		m := maintainer{pool: pool, layout: layout, after: r.After}
		var err error
		if m.name, err = pgtable.Name(ctx, pool, layout.Table); err != nil {
			return err
		}
		err = files.Fill(pgtable.Quote(layout), map[string]*string{
			"parts": &m.sql.parts, "next": &m.sql.next, "truncate": &m.sql.settled, "readers": &m.sql.readers,
			"subscribed": &m.sql.subscribed})
		if err != nil {
			return err
		}
		return m.run(ctx)
	})
}

type maintainer struct {
	pool   pooler.Sessions
	layout outbox.Layout
	name   string
	after  time.Duration
	sql    struct{ parts, next, settled, readers, subscribed string }
}

// part is what a part holds.
type part struct {
	Number         int16
	Filling        bool           // writers write into it
	Table          *string        // nil: it has no rows
	Oldest, Newest *time.Duration // ages
}

func (m *maintainer) run(ctx context.Context) error {
	parts, err := m.parts(ctx)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if p.Filling || p.Table == nil || *p.Newest < m.after {
			continue
		}
		if err := m.truncate(ctx, p.Number, *p.Table); err != nil {
			return err
		}
	}
	if parts, err = m.parts(ctx); err != nil {
		return err
	}
	for i, p := range parts {
		// Two parts are neither filled nor the next one: what they hold is at most as old as it has
		// to be, and a half.
		if next := parts[(i+1)%len(parts)]; p.Filling && p.Table != nil && *p.Oldest >= m.after/(partCount-2) &&
			next.Table == nil {
			if _, err := m.pool.Exec(ctx, m.sql.next); err != nil {
				return fmt.Errorf("fill the next part of %s: %w", m.layout.Table, err)
			}
		}
	}
	return nil
}

func (m *maintainer) parts(ctx context.Context) ([]part, error) {
	rows, err := m.pool.Query(ctx, m.sql.parts, partCount)
	if err != nil {
		return nil, fmt.Errorf("look at the parts of %s: %w", m.layout.Table, err)
	}
	parts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[part])
	if err != nil {
		return nil, fmt.Errorf("look at the parts of %s: %w", m.layout.Table, err)
	}
	return parts, nil
}

// truncate empties a part, if every row of it is settled, as of every reader that the log has had.
// Nobody is waited for: a transaction that has written into the part and is open still, or reads it
// for long, leaves it to the next run.
func (m *maintainer) truncate(ctx context.Context, number int16, part string) error {
	err := pgx.BeginFunc(ctx, m.pool.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '100ms'"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "LOCK TABLE "+part+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, m.sql.readers, m.name)
		if err != nil {
			return err
		}
		readers, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		var subscriptions int
		var acknowledged bool
		err = tx.QueryRow(ctx, m.sql.subscribed, number).Scan(&subscriptions, &acknowledged)
		if err != nil || !acknowledged || len(readers)+subscriptions == 0 {
			return err
		}
		for _, reader := range readers {
			var settled bool
			err := tx.QueryRow(ctx, m.sql.settled, reader, number, outbox.LaneCount).Scan(&settled)
			if err != nil || !settled {
				return err
			}
		}
		_, err = tx.Exec(ctx, "TRUNCATE "+part)
		return err
	})
	if pgtable.Code(err) == pgtable.LockNotAvailable {
		return nil
	}
	if err != nil {
		return fmt.Errorf("truncate %s: %w", part, err)
	}
	return nil
}
