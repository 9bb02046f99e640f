package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// A log has a fixed number of parts, which are filled one after the other, in a circle. Rows leave it only with all of
// their part, by TRUNCATE. So nobody makes or drops tables at run time, and no row is deleted. (docs/adr/0035)

const (
	logParts = 4 // as in the migration
	// logMaintenance is how long a run of retention may take.
	logMaintenance = time.Minute
	logRelease     = 5 * time.Second // for giving the maintenance up, also when the relay is told to stop
)

// retainLog looks again and again whether a part of a log can be truncated, or the next one be filled, until ctx ends.
func (d served) retainLog(ctx context.Context, layout outbox.Layout, r outbox.Retention) error {
	owner, err := outbox.NewID()
	if err != nil {
		return err
	}
	for failing := false; ; {
		err := d.maintainLog(ctx, layout, r.After, owner, r.Every/2)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failing {
			r.Logger.Warn("retention failed", "table", layout.Table, "error", err)
		}
		failing = err != nil
		if r.Observer != nil {
			r.Observer.ObserveRun(layout.Table, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.Every):
		}
	}
}

// maintainLog does one run, unless another process does or has just done it.
func (d served) maintainLog(
	ctx context.Context, layout outbox.Layout, after time.Duration, owner uuid.UUID, least time.Duration,
) error {
	m := logMaintainer{layout: layout, after: after}
	var err error
	if m.pool, err = newSessions(d.pool); err != nil {
		return err
	}
	if m.name, err = pgtable.Name(ctx, d.pool, layout.Table); err != nil {
		return err
	}
	t, err := parseSQL()
	if err != nil {
		return err
	}
	for name, dst := range map[string]*string{"retention_lease": &m.sql.lease, "retention_release": &m.sql.release,
		"log_parts": &m.sql.parts, "log_next": &m.sql.next, "log_truncate": &m.sql.settled} {
		if *dst, err = t.Statement(name, quote(layout)); err != nil {
			return err
		}
	}
	var since int64
	err = m.pool.QueryRow(ctx, m.sql.lease, layout.Table, owner, logMaintenance.Microseconds(), least.Microseconds()).
		Scan(&since)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lease maintenance of %s: %w", layout.Table, err)
	}
	err = m.run(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), logRelease)
	defer cancel()
	if _, released := m.pool.Exec(ending, m.sql.release, layout.Table, owner, 0, false); err == nil && released != nil {
		err = fmt.Errorf("release maintenance of %s: %w", layout.Table, released)
	}
	return err
}

type logMaintainer struct {
	pool   sessions
	layout outbox.Layout
	name   string
	after  time.Duration
	sql    struct{ lease, release, parts, next, settled string }
}

// logPart is what a part holds.
type logPart struct {
	Number         int16
	Filling        bool           // writers write into it
	Table          *string        // nil: it has no rows
	Oldest, Newest *time.Duration // ages
}

func (m *logMaintainer) run(ctx context.Context) error {
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
		// Two parts are neither filled nor the next one: what they hold is at most as old as it has to be, and a half.
		if next := parts[(i+1)%len(parts)]; p.Filling && p.Table != nil && *p.Oldest >= m.after/(logParts-2) &&
			next.Table == nil {
			if _, err := m.pool.Exec(ctx, m.sql.next); err != nil {
				return fmt.Errorf("fill the next part of %s: %w", m.layout.Table, err)
			}
		}
	}
	return nil
}

func (m *logMaintainer) parts(ctx context.Context) ([]logPart, error) {
	rows, err := m.pool.Query(ctx, m.sql.parts, logParts)
	if err != nil {
		return nil, fmt.Errorf("look at the parts of %s: %w", m.layout.Table, err)
	}
	parts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[logPart])
	if err != nil {
		return nil, fmt.Errorf("look at the parts of %s: %w", m.layout.Table, err)
	}
	return parts, nil
}

// truncate empties a part, if every row of it is settled. Nobody is waited for: a transaction that has written into the
// part and is open still, or reads it for long, leaves it to the next run.
func (m *logMaintainer) truncate(ctx context.Context, number int16, part string) error {
	err := pgx.BeginFunc(ctx, m.pool.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '100ms'"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "LOCK TABLE "+part+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		var settled bool
		if err := tx.QueryRow(ctx, m.sql.settled, m.name, number, outbox.Lanes).Scan(&settled); err != nil || !settled {
			return err
		}
		_, err := tx.Exec(ctx, "TRUNCATE "+part)
		return err
	})
	if code(err) == lockNotAvailable {
		return nil
	}
	if err != nil {
		return fmt.Errorf("truncate %s: %w", part, err)
	}
	return nil
}
