package pgoperate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Browser reads the rows of an outbox table for people. It changes nothing, but for RetryNow and SkipPage. Of a log it
// has the lanes and knows no ids, and refuses all else. It is safe for concurrent use.
type Browser struct {
	pool       *pgxpool.Pool
	layout     outbox.Layout
	sql        struct{ list, showID, showPosition, known, retry, behind, undelivered, skip, skipDead string }
	byPosition bool // lists are in the order of the position, not of the id
	hidden     bool // row-level security shows this role the rows of one tenant at a time
}

var _ operate.Browser = (*Browser)(nil)

// OpenBrowser returns a browser of a table after checking that the table fits the layout. pool should not be from
// Connect, whose sessions are made for relays. A table that is missing or older than the layout needs is an
// *outbox.SchemaError.
func OpenBrowser(ctx context.Context, pool *pgxpool.Pool, layout outbox.Layout) (*Browser, error) {
	if err := layout.Validate(); err != nil {
		return nil, err
	}
	var columns []string
	for _, c := range layout.Columns() {
		columns = append(columns, c)
	}
	if err := pgschema.CheckTable(ctx, pool, layout.Table, columns); err != nil {
		return nil, err
	}
	b := &Browser{pool: pool, layout: layout}
	err := pgschema.CheckVisible(ctx, pool, layout.Table)
	if errors.Is(err, outbox.ErrRowsHidden) && layout.App != "" {
		b.hidden = true
	} else if err != nil {
		return nil, err
	}
	if layout.IsLog() {
		return b, nil
	}
	return b, b.prepare(ctx)
}

// browseNames is what the templates need beside the layout.
type browseNames struct {
	sqltable.Layout
	ByColumn, ByType string
}

func (b *Browser) prepare(ctx context.Context) error {
	t, err := parseSQL()
	if err != nil {
		return err
	}
	if b.byPosition, err = pgtable.Ordered(ctx, b.pool, b.layout.Table, b.layout.Position); err != nil {
		return err
	}
	q := pgtable.Quote(b.layout)
	names := browseNames{Layout: q, ByColumn: q.ID, ByType: "uuid"}
	positions := browseNames{Layout: q, ByColumn: q.Position, ByType: "bigint"}
	unheld := names
	unheld.Unheld = true
	listed := names
	switch {
	case b.byPosition:
		listed = positions
	case q.TimeID != "":
		listed.ByColumn = q.TimeID
	}
	for _, s := range []struct {
		dst  *string
		name string
		data browseNames
	}{
		{&b.sql.list, "browse", listed}, {&b.sql.showID, "browse_show", names},
		{&b.sql.showPosition, "browse_show", positions},
		{&b.sql.retry, "events_retry", names}, {&b.sql.known, "browse_known", names},
		{&b.sql.undelivered, "events_undelivered", names}, {&b.sql.skip, "events_skip", names},
		{&b.sql.skipDead, "settle_dead", unheld},
	} {
		if *s.dst, err = t.Statement(s.name, s.data); err != nil {
			return err
		}
	}
	if q.Key != "" {
		b.sql.behind, err = t.Statement("events_behind", names)
	}
	return err
}

// Statuses are the states that a row of the table can be in.
func (b *Browser) Statuses() []string {
	if b.layout.Status == "" {
		return []string{"pending", "retry", "delivered"} // a dead row is in job_dlq
	}
	all := []string{b.layout.Pending, b.layout.Retrying, b.layout.Delivered, b.layout.Dead}
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	return slices.Compact(all)
}

// List returns a page of rows, newest first, and where the next page starts, or "" after the last.
//
// Newest means the highest position where an index gives that order, else the highest Layout.TimeID or event id. For a
// UUIDv7 that is the time at which it was made, for another UUID it is an order, but not of time.
func (b *Browser) List(ctx context.Context, f operate.Filter) (rows []operate.EventRow, next string, err error) {
	statuses, err := b.check(f)
	if err != nil {
		return nil, "", err
	}
	if f.Limit <= 0 {
		f.Limit = 50
	}
	err = b.read(ctx, f.Tenant, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, b.sql.list, statuses, pgtable.Null(f.Tenant), pgtable.Null(f.Key),
			pgtable.Like(f.Topic), pgtable.Null(f.After), f.Limit+1)
		if err != nil {
			return err
		}
		if rows, err = pgx.CollectRows(found, pgx.RowToStructByName[operate.EventRow]); err != nil {
			return err
		}
		return b.findBehind(ctx, tx, rows)
	})
	if err != nil {
		return nil, "", fmt.Errorf("list events of %s: %w", b.layout.Name(), err)
	}
	if len(rows) > f.Limit { // the one too many says that there is a next page
		rows = rows[:f.Limit]
		last := rows[f.Limit-1]
		next = last.ID.String()
		if b.byPosition {
			next = strconv.FormatInt(last.Position, 10)
		}
	}
	for i := range rows {
		rows[i].DateByID()
	}
	return rows, next, nil
}

// Show returns one event, by its id or by its position, of the tenant if one is named.
func (b *Browser) Show(ctx context.Context, idOrPosition, tenant string) (operate.EventDetail, error) {
	sql := b.sql.showPosition
	if _, err := strconv.ParseInt(idOrPosition, 10, 64); err != nil {
		if _, err := uuid.Parse(idOrPosition); err != nil {
			return operate.EventDetail{}, fmt.Errorf("%w: %q is neither an event id (a UUID) nor a position (a number)",
				operate.ErrFilter, idOrPosition)
		}
		sql = b.sql.showID
	}
	if _, err := b.check(operate.Filter{Tenant: tenant}); err != nil {
		return operate.EventDetail{}, err
	}
	var detail operate.EventDetail
	err := b.read(ctx, tenant, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, sql, idOrPosition)
		if err != nil {
			return err
		}
		detail, err = pgx.CollectExactlyOneRow(found, pgx.RowToStructByName[operate.EventDetail])
		if err == nil {
			row := []operate.EventRow{detail.EventRow}
			err = b.findBehind(ctx, tx, row)
			detail.EventRow = row[0]
		}
		if b.layout.Part != "" || err != nil && (!errors.Is(err, pgx.ErrNoRows) || sql != b.sql.showID) {
			return err
		}
		return b.showDeliveries(ctx, tx, &detail, err != nil, idOrPosition, tenant)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = operate.ErrNoEvent
	}
	if err != nil {
		return operate.EventDetail{}, fmt.Errorf("show event %s of %s: %w", idOrPosition, b.layout.Name(), err)
	}
	detail.DateByID()
	return detail, nil
}

// findBehind says of each row what it waits behind, and until when.
func (b *Browser) findBehind(ctx context.Context, tx pgx.Tx, rows []operate.EventRow) error {
	at := operate.MayWait(b.layout, rows)
	if len(at) == 0 {
		return nil
	}
	found, err := tx.Query(ctx, b.sql.behind, slices.Collect(maps.Keys(at)))
	if err != nil {
		return err
	}
	var position int64
	var behind uuid.UUID
	var until time.Time
	_, err = pgx.ForEachRow(found, []any{&position, &behind, &until}, func() error {
		at[position].Wait(behind, until)
		return nil
	})
	return err
}

// read runs fn in a read-only transaction, as the tenant where row-level security asks for one.
func (b *Browser) read(ctx context.Context, tenant string, fn func(pgx.Tx) error) error {
	return b.inTx(ctx, tenant, pgx.ReadOnly, fn)
}

func (b *Browser) inTx(ctx context.Context, tenant string, mode pgx.TxAccessMode, fn func(pgx.Tx) error) error {
	if b.layout.IsLog() {
		return fmt.Errorf("%s is a log, whose rows have no state: list what a sink did not take with --to SINK, and the "+
			"rest with SQL", b.layout.Table)
	}
	return pgx.BeginTxFunc(ctx, b.pool, pgx.TxOptions{AccessMode: mode}, func(tx pgx.Tx) error {
		if b.hidden {
			if err := pgtable.SpeakFor(ctx, tx, tenant); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}

// check reports what of a filter does not fit, and returns the statuses in the table's spelling, nil for all.
func (b *Browser) check(f operate.Filter) (statuses []string, err error) {
	refuse := func(format string, args ...any) ([]string, error) {
		return nil, fmt.Errorf("%w in %s: "+format, append([]any{operate.ErrFilter, b.layout.Table}, args...)...)
	}
	for _, s := range f.Statuses {
		i := slices.IndexFunc(b.Statuses(), func(known string) bool { return strings.EqualFold(known, s) })
		if i < 0 {
			return refuse("status %q is none of %s", s, strings.Join(b.Statuses(), ", "))
		}
		statuses = append(statuses, b.Statuses()[i])
	}
	switch {
	case b.hidden && f.Tenant == "":
		return nil, fmt.Errorf("%w in %s: %w, which sees one tenant at a time", operate.ErrFilter, b.layout.Table,
			outbox.ErrRowsHidden)
	case f.Tenant != "" && b.layout.Tenant == "" && b.layout.App == "":
		return refuse("it has no tenants")
	case f.Key != "" && b.layout.Key == "":
		return refuse("it has no keys")
	case f.After == "":
	case b.byPosition:
		if _, err := strconv.ParseInt(f.After, 10, 64); err != nil {
			return refuse("after is %q, want the position that the previous page ended with", f.After)
		}
	default:
		if _, err := uuid.Parse(f.After); err != nil {
			return refuse("after is %q, want the event id that the previous page ended with", f.After)
		}
	}
	return statuses, nil
}

// Known returns those of ids that are in the table already.
func (b *Browser) Known(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) ([]uuid.UUID, error) {
	if b.layout.IsLog() {
		return nil, nil
	}
	rows, err := tx.Query(ctx, b.sql.known, ids)
	if err != nil {
		return nil, fmt.Errorf("look for ids in %s: %w", b.layout.Table, err)
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("look for ids in %s: %w", b.layout.Table, err)
	}
	return known, nil
}
