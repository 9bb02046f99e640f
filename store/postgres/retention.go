package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// sweepPages is how many pages of a table one search of a sweep reads: 2 MB. Larger ones make it
// faster by little and the pauses between them longer.
const sweepPages = 256

// aging is a retention.Dialect. Each of its statements is a transaction of its own, with the
// settings of session.sql.
type aging struct {
	pgcold.DB
	sessions pooler.Sessions
}

var _ retention.Dialect = aging{}

// OpenRetention returns the retention of an outbox table, or of retention.Letters, after checking
// that this role may remove its rows and sees them all. Errors are an *outbox.SchemaError,
// retention.ErrNoAge, outbox.ErrRowsHidden or outbox.ErrNotAllowed if waiting does not cure them.
func (d *DB) OpenRetention(ctx context.Context, layout outbox.Layout) (*retention.Table, error) {
	return served{d.pool}.openRetention(ctx, layout)
}

func (d served) openRetention(ctx context.Context, layout outbox.Layout) (*retention.Table, error) {
	db, err := newAging(d.pool)
	if err != nil {
		return nil, err
	}
	return retention.Open(ctx, db, layout)
}

func newAging(pool *pgxpool.Pool) (aging, error) {
	sessions, err := newSessions(pool)
	return aging{pgcold.DB{Pool: pool}, sessions}, err
}

// Statements implements cold.Database.
func (aging) Statements() (*sqlfile.Set, error) { return files.Set() }

// Reads implements retention.Dialect.
func (a aging) Reads() cold.Conn { return pgcold.Conn{Querier: a.sessions} }

// Change implements retention.Dialect.
func (a aging) Change(_ context.Context, _ bool, fn func(*cold.Tx) error) error {
	return fn(cold.In(a, a.Reads()))
}

// Removable implements retention.Dialect.
func (a aging) Removable(ctx context.Context, table string) error {
	err := pgschema.CheckAllowed(ctx, a.Pool, "remove rows of", table, []string{"SELECT", "DELETE"})
	if err != nil {
		return err
	}
	return pgschema.CheckVisible(ctx, a.Pool, table)
}

// Compiles implements retention.Dialect.
func (a aging) Compiles(ctx context.Context, statement string) error {
	conn, err := a.sessions.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Conn().Prepare(ctx, "", statement)
	return err
}

// Removes implements retention.Dialect.
func (aging) Removes() []string { return []string{"retention_sweep", "retention_remove"} }

// sweepPlace is where a search of a sweep begins. The number of pages is fixed at the beginning:
// what is written later is not old.
type sweepPlace struct {
	page, offset, part, pages int64
}

func (p sweepPlace) String() string {
	return fmt.Sprintf("%d %d %d %d", p.page, p.offset, p.part, p.pages)
}

// Refuses implements retention.Dialect.
func (aging) Refuses(err error) bool {
	return pgtable.Refused(err) && !pgtable.Passes(err) && !pgtable.OfAccess(err) &&
		pgtable.Code(err) != pgtable.QueryCanceled
}

// Sweep implements retention.Dialect: the due rows of the next pages, at most the limit.
func (a aging) Sweep(
	ctx context.Context, t *retention.Table, search retention.Search, row func(retention.Row) error,
) (string, error) {
	var from sweepPlace
	tx, q := cold.In(a, a.Reads()), t.Query(search)
	if search.After == "" {
		if err := tx.One(ctx, "retention_pages", q, &from.pages); err != nil {
			return "", err
		}
	} else if _, err := fmt.Sscan(search.After, &from.page, &from.offset, &from.part, &from.pages); err != nil {
		return "", fmt.Errorf("read place %q: %w", search.After, err)
	}
	to := from.page + sweepPages
	q.From, q.FromPart, q.To = tid(from.page, from.offset), uint32(from.part), tid(to, 0)
	var last retention.Row
	seen := 0
	err := tx.Each(ctx, "retention_sweep", q, func(rows cold.Rows) error {
		last = retention.Row{}
		var id, content sqltable.Text
		if err := rows.Scan(&last.Place, &last.Part, &id, &last.Position, &content); err != nil {
			return err
		}
		seen++
		last.ID, _ = sqltable.ParseID(id)
		if search.Content {
			last.Content = []byte(content.S)
		}
		return row(last)
	})
	if err != nil {
		return "", err
	}
	next := sweepPlace{page: to, pages: from.pages}
	if seen == search.Limit {
		if _, err := fmt.Sscanf(last.Place, "(%d,%d)", &next.page, &next.offset); err != nil {
			return "", fmt.Errorf("read tid %q: %w", last.Place, err)
		}
		next.part = int64(last.Part)
	}
	if next.page >= next.pages {
		return "", nil
	}
	return next.String(), nil
}

func tid(page, offset int64) string { return fmt.Sprintf("(%d,%d)", page, offset) }

// Remove implements retention.Dialect.
func (aging) Remove(ctx context.Context, tx *cold.Tx, q retention.Query) (n int, err error) {
	places := make([]string, len(q.Rows))
	q.Parts = make([]uint32, len(q.Rows))
	for i, row := range q.Rows {
		places[i], q.Parts[i] = row.Place, row.Part
	}
	q.Places = places
	return n, tx.One(ctx, "retention_remove", q, &n)
}
