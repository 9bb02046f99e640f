package sqliteoperate

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// Browser reads the rows of an outbox table for people. It changes nothing, but for RetryNow and SkipPage. It is safe
// for concurrent use.
type Browser struct {
	db     *sqlite.DB
	layout outbox.Layout
	quoted sqltable.Layout
	sql    struct{ showID, showPosition, known, behind string }
}

var _ operate.Browser = (*Browser)(nil)

// OpenBrowser returns a browser of a table after checking that the table fits the layout. A table that is missing or
// older than the layout needs is an *outbox.SchemaError.
func OpenBrowser(ctx context.Context, db *sqlite.DB, layout outbox.Layout) (*Browser, error) {
	if err := layout.Validate(); err != nil {
		return nil, err
	}
	var err error
	if layout.Table, err = file(db).Spelled(ctx, layout.Table); err != nil { // as the leases have it
		return nil, err
	}
	if _, err := file(db).CheckTable(ctx, layout.Table, sqltable.Names(layout)); err != nil {
		return nil, err
	}
	t, err := parseSQL()
	if err != nil {
		return nil, err
	}
	b := &Browser{db: db, layout: layout, quoted: sqlitetable.Quote(layout)}
	for _, s := range []struct {
		dst  *string
		name string
		data browseQuery
	}{
		{&b.sql.showID, "browse_show", browseQuery{Layout: b.quoted}},
		{&b.sql.showPosition, "browse_show", browseQuery{Layout: b.quoted, ByPosition: true}},
		{&b.sql.known, "browse_known", browseQuery{Layout: b.quoted}},
	} {
		if *s.dst, err = t.Statement(s.name, &s.data); err != nil {
			return nil, err
		}
	}
	if layout.Key != "" {
		if b.sql.behind, err = t.Statement("events_behind", b.quoted); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// browseQuery is what the templates browse*.sql are given.
type browseQuery struct {
	sqltable.Layout
	sqlitetable.Arguments
	F          operate.Filter
	Chosen     []string // statuses, as texts in SQL
	Only       string   // Chosen, if it is one
	ByPosition bool

	OnlyUndelivered bool // all of Chosen are
	Rare            bool // all of Chosen have failed
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

// List returns a page of rows, newest first, and where the next page starts, or "" after the last. Newest means the
// highest position: the order of the commits.
func (b *Browser) List(ctx context.Context, f operate.Filter) (rows []operate.EventRow, next string, err error) {
	q, err := b.query(f)
	if err != nil {
		return nil, "", err
	}
	if rows, err = b.list(ctx, q); err != nil {
		return nil, "", fmt.Errorf("list events of %s: %w", b.layout.Name(), sqlitefile.Explain(err))
	}
	if len(rows) == q.F.Limit { // the one too many says that there is a next page
		rows = rows[:q.F.Limit-1]
		next = strconv.FormatInt(rows[len(rows)-1].Position, 10)
	}
	return rows, next, nil
}

func (b *Browser) list(ctx context.Context, q *browseQuery) (all []operate.EventRow, err error) {
	t, err := parseSQL()
	if err != nil {
		return nil, err
	}
	text, err := t.Statement("browse", q)
	if err != nil {
		return nil, err
	}
	err = file(b.db).Snapshot(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, text, q.Args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var r browsedRow
			if err := rows.Scan(r.columns()...); err != nil {
				return err
			}
			all = append(all, r.row())
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return b.findBehind(ctx, tx, all)
	})
	return all, err
}

// findBehind says of each row what it waits behind, and until when.
func (b *Browser) findBehind(ctx context.Context, tx *sql.Tx, all []operate.EventRow) error {
	at := operate.MayWait(b.layout, all)
	if len(at) == 0 {
		return nil
	}
	positions, err := json.Marshal(slices.Collect(maps.Keys(at)))
	if err != nil {
		return fmt.Errorf("encode positions: %w", err)
	}
	rows, err := tx.QueryContext(ctx, b.sql.behind, string(positions), sqlitetime.Stamp(time.Now()))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var position int64
		var id, until sqltable.Text
		if err := rows.Scan(&position, &id, &until); err != nil {
			return err
		}
		behind, _ := sqltable.ParseID(id)
		if next := until.Moment(); next != nil {
			at[position].Wait(behind, *next)
		}
	}
	return rows.Err()
}

// query reports what of a filter does not fit, and returns the query of what does. Its limit is one more, which tells
// whether there is a next page.
func (b *Browser) query(f operate.Filter) (*browseQuery, error) {
	refuse := func(format string, args ...any) (*browseQuery, error) {
		return nil, fmt.Errorf("%w in %s: "+format, append([]any{operate.ErrFilter, b.layout.Table}, args...)...)
	}
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit++
	q := &browseQuery{Layout: b.quoted, F: f, OnlyUndelivered: len(f.Statuses) > 0,
		Rare: len(f.Statuses) > 0 && b.layout.Status != ""}
	for _, s := range f.Statuses {
		i := slices.IndexFunc(b.Statuses(), func(known string) bool { return strings.EqualFold(known, s) })
		if i < 0 {
			return refuse("status %q is none of %s", s, strings.Join(b.Statuses(), ", "))
		}
		status := b.Statuses()[i]
		q.Chosen = append(q.Chosen, sqlitetable.QuoteText(status))
		if b.layout.Status == "" {
			q.OnlyUndelivered = q.OnlyUndelivered && status != "delivered"
		} else {
			q.OnlyUndelivered = q.OnlyUndelivered && (status == b.layout.Pending || status == b.layout.Retrying)
			q.Rare = q.Rare && (status == b.layout.Dead || status == b.layout.Retrying)
		}
	}
	if len(q.Chosen) == 1 {
		q.Only = q.Chosen[0]
	}
	switch {
	case f.Tenant != "" && b.layout.Tenant == "" && b.layout.App == "":
		return refuse("it has no tenants")
	case f.Key != "" && b.layout.Key == "":
		return refuse("it has no keys")
	}
	if _, err := strconv.ParseInt(f.After, 10, 64); f.After != "" && err != nil {
		return refuse("after is %q, want the position that the previous page ended with", f.After)
	}
	return q, nil
}

// Show returns one event, by its id or by its position, of the tenant if one is named.
func (b *Browser) Show(ctx context.Context, idOrPosition, tenant string) (operate.EventDetail, error) {
	text, by := b.sql.showPosition, idOrPosition
	if _, err := strconv.ParseInt(idOrPosition, 10, 64); err != nil {
		id, err := uuid.Parse(idOrPosition)
		if err != nil {
			return operate.EventDetail{}, fmt.Errorf("%w: %q is neither an event id (a UUID) nor a position (a number)",
				operate.ErrFilter, idOrPosition)
		}
		text, by = b.sql.showID, id.String()
	}
	if _, err := b.query(operate.Filter{Tenant: tenant}); err != nil {
		return operate.EventDetail{}, err
	}
	deliveries, err := b.hasDeliveries(ctx)
	if err != nil {
		return operate.EventDetail{}, err
	}
	var r browsedDetail
	var detail operate.EventDetail
	err = file(b.db).Snapshot(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, text, by, tenant).Scan(r.columns()...)
		if err == nil {
			detail = r.detail()
			row := []operate.EventRow{detail.EventRow}
			err = b.findBehind(ctx, tx, row)
			detail.EventRow = row[0]
		}
		if !deliveries || err != nil && (!errors.Is(err, sql.ErrNoRows) || text != b.sql.showID) {
			return err
		}
		return b.showDeliveries(ctx, tx, &detail, err != nil, by, tenant)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = operate.ErrNoEvent
	}
	if err != nil {
		return operate.EventDetail{},
			fmt.Errorf("show event %s of %s: %w", idOrPosition, b.layout.Name(), sqlitefile.Explain(err))
	}
	return detail, nil
}

// Known returns those of ids that are in the table already, as tx sees it. Whoever writes in the same transaction and
// ignores duplicates can tell afterwards which events were new (`outbox write` does). Nobody adds one in between.
func (b *Browser) Known(ctx context.Context, tx *sql.Tx, ids []uuid.UUID) (known []uuid.UUID, err error) {
	var a sqlitetable.Arguments
	if _, err := a.Add(ids); err != nil {
		return nil, err
	}
	if known, err = sqlitetable.QueryIDs(ctx, tx, b.sql.known, a.Args...); err != nil {
		return nil, fmt.Errorf("look for ids in %s: %w", b.layout.Table, sqlitefile.Explain(err))
	}
	return known, nil
}
