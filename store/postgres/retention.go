package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/retention"
)

// sweepPages is how many pages of a table one search of a sweep reads: 2 MB. Larger ones make it faster by little and
// the pauses between them longer.
const sweepPages = 256

// retain is a table that old rows can be removed from. It is safe for concurrent use.
type retain struct {
	pool   sessions
	layout outbox.Layout
	by     walkOrder
	sql    struct{ lease, release, walk, sweep, pages, remove string }
}

var _ retention.Table = (*retain)(nil)

// walkOrder is the column whose index gives rows in the order in which they grow old. None: there is no such index, and
// only sweeps find rows.
type walkOrder struct{ column, kind string }

// retentionNames is what the templates need beside the layout.
type retentionNames struct {
	quotedLayout
	ByColumn, ByType string
}

// OpenRetention returns the retention of an outbox table, or of retention.Letters, after checking that this role may
// remove its rows and sees them all. Errors are an *outbox.SchemaError, retention.ErrNoAge, outbox.ErrRowsHidden or
// outbox.ErrNotAllowed if waiting does not cure them.
func (d *DB) OpenRetention(ctx context.Context, layout outbox.Layout) (retention.Table, error) {
	return openRetention(ctx, d.pool, layout)
}

func openRetention(ctx context.Context, pool *pgxpool.Pool, layout outbox.Layout) (*retain, error) {
	if layout.Table == letterTable {
		// The index of replay times is core/003's. Letters with the time of the page's last one may wait for the next run.
		r, err := newRetain(ctx, pool, layout)
		if err != nil {
			return nil, err
		}
		r.by = walkOrder{"replayed_at", "timestamptz"}
		return r, r.prepare(ctx)
	}
	if err := layout.Validate(); err != nil {
		return nil, err
	}
	if layout.IsLog() {
		return nil, fmt.Errorf("remove rows of %s: it is a log, of which relays truncate old parts: set their retention",
			layout.Table)
	}
	if layout.DeliveredAt == "" && layout.WrittenAt == "" {
		return nil, fmt.Errorf("remove rows of %s: %w: give its layout delivered_at or written_at", layout.Table,
			retention.ErrNoAge)
	}
	return newRetain(ctx, pool, layout, walkOrder{layout.Position, "bigint"}, walkOrder{layout.ID, "uuid"})
}

func newRetain(
	ctx context.Context, pool *pgxpool.Pool, layout outbox.Layout, orders ...walkOrder,
) (*retain, error) {
	var columns []string
	for _, c := range layout.Columns() {
		columns = append(columns, c)
	}
	if err := pgschema.CheckTable(ctx, pool, layout.Table, columns); err != nil {
		return nil, err
	}
	if err := pgschema.CheckTable(ctx, pool, "outbox_maintenance", []string{"ran_at", "swept_at"}); err != nil {
		return nil, err
	}
	if err := pgschema.CheckTable(ctx, pool, "outbox_archive", []string{"position", "row"}); err != nil {
		return nil, err
	}
	if err := checkRemovable(ctx, pool, layout); err != nil {
		return nil, err
	}
	if err := pgschema.CheckVisible(ctx, pool, layout.Table); err != nil {
		return nil, err
	}
	sessions, err := newSessions(pool)
	if err != nil {
		return nil, err
	}
	r := &retain{pool: sessions, layout: layout}
	for _, by := range orders {
		ordered, err := pgtable.Ordered(ctx, pool, layout.Table, by.column)
		if err != nil {
			return nil, err
		}
		if ordered {
			r.by = by
			break
		}
	}
	return r, r.prepare(ctx)
}

// checkRemovable is checkAllowed for who removes rows.
func checkRemovable(ctx context.Context, pool *pgxpool.Pool, l outbox.Layout) error {
	return allowed(ctx, pool, "remove rows of", l.Table, []string{"SELECT", "DELETE"}, nil)
}

// prepare fills the statements in, and has the server check them: a column of a mapped table may not be of the type
// that its part asks for.
func (r *retain) prepare(ctx context.Context) error {
	t, err := parseSQL()
	if err != nil {
		return err
	}
	names := retentionNames{quotedLayout: quote(r.layout), ByColumn: pgx.Identifier{r.by.column}.Sanitize(),
		ByType: r.by.kind}
	for _, s := range []struct {
		name string
		dst  *string
	}{
		{"lease", &r.sql.lease}, {"release", &r.sql.release}, {"pages", &r.sql.pages}, {"walk", &r.sql.walk},
		{"sweep", &r.sql.sweep}, {"remove", &r.sql.remove},
	} {
		if s.name == "walk" && r.by.column == "" {
			continue
		}
		if *s.dst, err = t.Statement("retention_"+s.name, names); err != nil {
			return err
		}
	}
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("check statements for %s: %w", r.layout.Table, err)
	}
	defer conn.Release()
	for _, sql := range []string{r.sql.sweep, r.sql.walk, r.sql.remove} {
		if sql == "" { // no walk; and pgx gives a statement without a text a name, which would stay with the session
			continue
		}
		if _, err := conn.Conn().Prepare(ctx, "", sql); err != nil {
			return fmt.Errorf("check statements for %s, a column is not of the type that its part in the layout asks for: %w",
				r.layout.Table, err)
		}
	}
	return nil
}

// Lease implements retention.Store.
func (r *retain) Lease(ctx context.Context, request retention.LeaseRequest) (retention.Lease, error) {
	var micros int64
	err := r.pool.QueryRow(ctx, r.sql.lease, r.layout.Table, request.Owner, request.TTL.Microseconds(),
		request.Least.Microseconds()).Scan(&micros)
	if errors.Is(err, pgx.ErrNoRows) {
		return retention.Lease{}, nil
	}
	if err != nil {
		return retention.Lease{}, fmt.Errorf("lease maintenance of %s: %w", r.layout.Table, err)
	}
	return retention.Lease{Held: true, SinceSweep: time.Duration(micros) * time.Microsecond}, nil
}

// Release implements retention.Store.
func (r *retain) Release(ctx context.Context, owner uuid.UUID, done retention.Done) error {
	if _, err := r.pool.Exec(ctx, r.sql.release, r.layout.Table, owner, done.Rows, done.Swept); err != nil {
		return fmt.Errorf("release maintenance of %s: %w", r.layout.Table, err)
	}
	return nil
}

// Find implements retention.Store.
func (r *retain) Find(
	ctx context.Context, search retention.Search, row func(retention.Row) error,
) (next string, err error) {
	switch {
	case search.Sweep:
		next, err = r.sweep(ctx, search, row)
	case r.by.column != "":
		next, err = r.walk(ctx, search, row)
	}
	if err != nil {
		return "", fmt.Errorf("look for old rows of %s: %w", r.layout.Table, err)
	}
	return next, nil
}

// walk returns one page in the order of r.by.
func (r *retain) walk(ctx context.Context, search retention.Search, row func(retention.Row) error) (string, error) {
	rows, err := r.pool.Query(ctx, r.sql.walk, search.OlderThan.Microseconds(), pgtable.Null(search.After), search.Limit,
		search.Content)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var place string
	seen, someOld := 0, false
	for rows.Next() {
		var found retention.Row
		var due, old bool
		if err := rows.Scan(&found.Place, &found.Part, &found.ID, &found.Position, &found.Content, &place, &due,
			&old); err != nil {
			return "", err
		}
		seen++
		someOld = someOld || old
		if due {
			if err := row(found); err != nil {
				return "", err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	// Nothing bounds positions by time. After a page without anything old, what follows is newer still; where it is
	// not, a later run or the next sweep gets to it. Ids and times are bounded by the statement.
	if seen < search.Limit || r.by.kind == "bigint" && !someOld {
		return "", nil
	}
	return place, nil
}

// sweepPlace is where a search of a sweep begins. The number of pages is fixed at the beginning: what is written later
// is not old.
type sweepPlace struct {
	page, offset, part, pages int64
}

func (p sweepPlace) String() string {
	return fmt.Sprintf("%d %d %d %d", p.page, p.offset, p.part, p.pages)
}

// sweep returns the due rows of the next pages, at most the limit.
func (r *retain) sweep(ctx context.Context, search retention.Search, row func(retention.Row) error) (string, error) {
	var from sweepPlace
	if search.After == "" {
		if err := r.pool.QueryRow(ctx, r.sql.pages, pgtable.QuoteTable(r.layout.Table)).Scan(&from.pages); err != nil {
			return "", err
		}
	} else if _, err := fmt.Sscan(search.After, &from.page, &from.offset, &from.part, &from.pages); err != nil {
		return "", fmt.Errorf("read place %q: %w", search.After, err)
	}
	to := from.page + sweepPages
	rows, err := r.pool.Query(ctx, r.sql.sweep, search.OlderThan.Microseconds(), tid(from.page, from.offset),
		uint32(from.part), tid(to, 0), search.Limit, search.Content)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var last retention.Row
	seen := 0
	for ; rows.Next(); seen++ {
		last = retention.Row{}
		if err := rows.Scan(&last.Place, &last.Part, &last.ID, &last.Position, &last.Content); err != nil {
			return "", err
		}
		if err := row(last); err != nil {
			return "", err
		}
	}
	if err := rows.Err(); err != nil {
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

// Remove implements retention.Store.
func (r *retain) Remove(ctx context.Context, removal retention.Removal) (int, error) {
	places, parts, ids := make([]string, len(removal.Rows)), make([]uint32, len(removal.Rows)),
		make([][16]byte, len(removal.Rows))
	for i, row := range removal.Rows {
		places[i], parts[i], ids[i] = row.Place, row.Part, row.ID
	}
	var n int
	err := r.pool.QueryRow(ctx, r.sql.remove, removal.OlderThan.Microseconds(), r.layout.Table, removal.Owner, places,
		parts, ids, removal.Archive).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("remove old rows of %s: %w", r.layout.Table, err)
	}
	return n, nil
}

// Audit records in outbox_audit that somebody removed rows by hand.
func (r *retain) Audit(ctx context.Context, actor string, olderThan time.Duration, done retention.Report) error {
	sql, err := plain("retention_audit")
	if err != nil {
		return err
	}
	filter := map[string]any{"table": done.Table, "older_than": olderThan.String()}
	detail := map[string]any{"action": done.Action, "files": done.Files}
	if _, err := r.pool.Exec(ctx, sql, actor, min(done.Rows, math.MaxInt32), filter, detail); err != nil {
		return fmt.Errorf("record the purge of %s in outbox_audit: %w", r.layout.Table, err)
	}
	return nil
}
