package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// Database is a database as operators see it. It is safe for concurrent use.
type Database struct{ db cold.Database }

// On returns the view of a database.
func On(db cold.Database) Database { return Database{db} }

// Cold is the database that it is a view of.
func (d Database) Cold() cold.Database { return d.db }

// Browser shows the rows of an outbox table to people. It changes nothing, but for RetryNow,
// SkipPage and ReplayPage. Of a log it has the lanes and knows no ids, and refuses all else. It is
// safe for concurrent use.
//
// It is not cheap: a filter that no index serves reads the table. A role that row-level security
// shows one tenant's rows sees those, and says for whom.
type Browser struct {
	db         cold.Database
	layout     outbox.Layout
	quoted     sqltable.Layout
	leased     string // the table's name in leases and in the archive
	byPosition bool   // lists are in the order of the position, not of the id
	hidden     bool   // row-level security shows this role the rows of one tenant at a time
}

// Browser returns a browser of a table after checking that the table fits the layout. A table that
// is missing or older than the layout needs is an *outbox.SchemaError.
func (d Database) Browser(ctx context.Context, layout outbox.Layout) (_ *Browser, err error) {
	db := d.db
	if err := layout.Validate(); err != nil {
		return nil, err
	}
	if layout.Table, err = db.Lettered(ctx, layout.Table); err != nil {
		return nil, err
	}
	if err := db.Check(ctx, layout.Table, sqltable.Names(layout)); err != nil {
		return nil, err
	}
	b := &Browser{db: db, layout: layout, quoted: db.Quote(layout)}
	if layout.App == "" {
		err = db.Visible(ctx, layout.Table)
	} else {
		b.hidden, err = cold.Hidden(ctx, db, layout.Table)
	}
	if err != nil {
		return nil, err
	}
	if b.leased, err = db.Leased(ctx, layout.Table); err != nil {
		return nil, err
	}
	if layout.Reader != "" && !layout.KeepsState() {
		b.leased += "/" + layout.Reader // as Layout.Name
	}
	b.byPosition, err = db.Ordered(ctx, layout.Table, layout.Position)
	return b, err
}

// query is what the files of a Browser are given.
type query struct {
	sqltable.Layout
	Leased string
	Now    time.Time // of the machine, for databases whose rows are by its clock
	Lanes  int

	F      Filter
	S      Selection
	D      Delivered
	Limit  int
	Shares int
	Count  int

	SinceID, UntilID uuid.UUID // the first UUIDv7 of F.Since and F.Until

	Asked     string // an event's id, or its position
	Event     uuid.UUID
	IDs       []uuid.UUID
	Positions []int64

	ByTopic          bool
	ByPosition       bool
	ByColumn, ByType string // what ByPosition means, and its type

	Statuses        []string // of F, in the table's spelling
	Chosen          []string // the same, as texts in SQL
	Only            string   // Chosen, if it is one
	OnlyUndelivered bool     // all of Chosen are
	Rare            bool     // all of Chosen have failed

	Columns []sqltable.Column
}

func (b *Browser) query() *query {
	return &query{Layout: b.quoted, Leased: b.leased, Now: time.Now(), Lanes: outbox.LaneCount,
		ByColumn: b.quoted.ID, ByType: "uuid"}
}

// Statuses are the states that a row of the table can be in, in the table's spelling.
func (b *Browser) Statuses() []string {
	if b.layout.Status == "" {
		return []string{"pending", "retry", "delivered"} // a dead row is in job_dlq
	}
	all := []string{b.layout.Pending, b.layout.Retrying, b.layout.Delivered, b.layout.Dead}
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	return slices.Compact(all)
}

// check reports what of a filter does not fit, as an ErrFilter.
func (b *Browser) check(f Filter) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w in %s: "+format, append([]any{ErrFilter, b.layout.Table}, args...)...)
	}
	switch {
	case b.hidden && f.Tenant == "":
		return fmt.Errorf("%w in %s: %w, which sees one tenant at a time",
			ErrFilter, b.layout.Table, outbox.ErrRowsHidden)
	case f.Tenant != "" && b.layout.Tenant == "" && b.layout.App == "":
		return refuse("it has no tenants")
	case f.Key != "" && b.layout.Key == "":
		return refuse("it has no keys")
	case f.Type != "" && b.layout.AggregateType == "":
		return refuse("its events have no aggregate types")
	case f.Trace != "" && b.layout.Metadata == "":
		return refuse("its events have no metadata, and so no traces")
	case (!f.Since.IsZero() || !f.Until.IsZero()) && b.layout.WrittenAt == "" && b.layout.TimeID == "":
		return refuse("its events do not tell when they were written")
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return refuse("nothing is between %s and %s", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339))
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
	return nil
}

// matching returns the query of a filter.
func (b *Browser) matching(f Filter) (*query, error) {
	q := b.query()
	for _, s := range f.Statuses {
		i := slices.IndexFunc(b.Statuses(), func(known string) bool { return strings.EqualFold(known, s) })
		if i < 0 {
			return nil, fmt.Errorf("%w in %s: status %q is none of %s", ErrFilter, b.layout.Table, s,
				strings.Join(b.Statuses(), ", "))
		}
		q.Statuses = append(q.Statuses, b.Statuses()[i])
	}
	if err := b.check(f); err != nil {
		return nil, err
	}
	q.F = f
	q.SinceID, q.UntilID = uuid7.First(f.Since), uuid7.First(f.Until)
	b.choose(q)
	return q, nil
}

// listed returns the query of a page. Its limit is one more, which tells whether there is a next
// page.
func (b *Browser) listed(f Filter) (*query, error) {
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit++
	q, err := b.matching(f)
	if err != nil {
		return nil, err
	}
	switch {
	case b.byPosition:
		q.ByColumn, q.ByType = q.Position, "bigint"
	case q.TimeID != "":
		q.ByColumn = q.TimeID
	}
	return q, nil
}

// choose says of the statuses what a database must know to find its partial index.
func (b *Browser) choose(q *query) {
	q.OnlyUndelivered, q.Rare = len(q.Statuses) > 0, len(q.Statuses) > 0 && b.layout.Status != ""
	for _, s := range q.Statuses {
		q.Chosen = append(q.Chosen, sqltable.QuoteText(s))
		if b.layout.Status == "" {
			q.OnlyUndelivered = q.OnlyUndelivered && s != "delivered"
			continue
		}
		q.OnlyUndelivered = q.OnlyUndelivered && (s == b.layout.Pending || s == b.layout.Retrying)
		q.Rare = q.Rare && (s == b.layout.Dead || s == b.layout.Retrying)
	}
	if len(q.Chosen) == 1 {
		q.Only = q.Chosen[0]
	}
}

// read runs fn in a transaction that reads, as the tenant where row-level security asks for one.
func (b *Browser) read(ctx context.Context, tenant string, fn func(*cold.Tx) error) error {
	return b.in(ctx, cold.Read, tenant, fn)
}

// in is read, of cold.Read or cold.Write.
func (b *Browser) in(
	ctx context.Context, run func(context.Context, cold.Database, func(*cold.Tx) error) error, tenant string,
	fn func(*cold.Tx) error,
) error {
	if !b.layout.KeepsState() {
		return fmt.Errorf("%w: %s is a log, whose rows have no state: list what a sink did not take with "+
			"--sink SINK, the rest with SQL, and follow one event with outbox why", ErrFilter, b.layout.Table)
	}
	return run(ctx, b.db, func(tx *cold.Tx) error {
		if b.hidden {
			if err := tx.SpeakFor(ctx, tenant); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}

// List returns a page of rows, newest first, and what Filter.After must be for the next page, or ""
// after the last. A filter that does not fit the table is an ErrFilter.
//
// Newest means the highest position where an index gives that order, else the highest Layout.TimeID
// or event id. For a UUIDv7 that is the time at which it was made, for another UUID it is an order,
// but not of time.
func (b *Browser) List(ctx context.Context, f Filter) (rows []EventRow, next string, err error) {
	q, err := b.listed(f)
	if err != nil {
		return nil, "", err
	}
	err = b.read(ctx, f.Tenant, func(tx *cold.Tx) error {
		err := tx.Each(ctx, "browse", q, func(found cold.Rows) error {
			var r browsedRow
			err := found.Scan(r.columns()...)
			rows = append(rows, r.row())
			return err
		})
		if err != nil {
			return err
		}
		return b.findBehind(ctx, tx, rows)
	})
	if err != nil {
		return nil, "", fmt.Errorf("list events of %s: %w", b.layout.Name(), err)
	}
	if len(rows) == q.F.Limit { // the one too many says that there is a next page
		rows = rows[:q.F.Limit-1]
		last := rows[len(rows)-1]
		next = last.ID.String()
		if b.byPosition {
			next = strconv.FormatInt(last.Position, 10)
		}
	}
	return rows, next, nil
}

// findBehind says of each row what it waits behind, and until when.
func (b *Browser) findBehind(ctx context.Context, tx *cold.Tx, rows []EventRow) error {
	at := mayWait(b.layout, rows)
	if len(at) == 0 {
		return nil
	}
	q := b.query()
	for position := range at {
		q.Positions = append(q.Positions, position)
	}
	return tx.Each(ctx, "events_behind", q, func(found cold.Rows) error {
		var position int64
		var id, until sqltable.Text
		err := found.Scan(&position, &id, &until)
		if next := until.Moment(); next != nil {
			behind, _ := sqltable.ParseID(id)
			at[position].WaitsBehind, at[position].NextRetryAt = &behind, next
		}
		return err
	})
}

// Known returns those of ids that are in the table already, as a caller's transaction sees it.
// Whoever writes in the same transaction and ignores duplicates can tell afterwards which events
// were new (`outbox write` does).
func (b *Browser) Known(ctx context.Context, conn cold.Conn, ids []uuid.UUID) (known []uuid.UUID, err error) {
	if !b.layout.KeepsState() {
		return nil, nil
	}
	q := b.query()
	q.IDs = ids
	err = cold.In(b.db, conn).Each(ctx, "browse_known", q, func(rows cold.Rows) error {
		var found sqltable.Text
		err := rows.Scan(&found)
		id, _ := sqltable.ParseID(found)
		known = append(known, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for ids in %s: %w", b.layout.Table, b.db.Explain(err))
	}
	return known, nil
}

// browsedRow is a row as browse_columns gives it: what is in it is shown, whatever type a mapped
// table has it in.
type browsedRow struct {
	id                                                sqltable.Text
	position                                          int64
	status, topic, key, aggregateType, tenant, source sqltable.Text
	writtenAt, deliveredAt                            sqltable.Text
	attempts                                          sqltable.Number
	nextRetryAt, lastError, destinations              sqltable.Text
}

func (r *browsedRow) columns() []any {
	return []any{
		&r.id, &r.position, &r.status, &r.topic, &r.key, &r.aggregateType, &r.tenant, &r.source, &r.writtenAt,
		&r.deliveredAt, &r.attempts, &r.nextRetryAt, &r.lastError, &r.destinations,
	}
}

func (r *browsedRow) row() EventRow {
	id, _ := sqltable.ParseID(r.id)
	row := EventRow{
		ID: id, Position: r.position, Status: r.status.S, Topic: r.topic.S, Key: r.key.Pointer(),
		AggregateType: r.aggregateType.Pointer(), Tenant: r.tenant.Pointer(), Source: r.source.Pointer(),
		WrittenAt: r.writtenAt.TimeOfID().Moment(), DeliveredAt: r.deliveredAt.Moment(), Attempts: int(r.attempts.N),
		NextRetryAt: r.nextRetryAt.Moment(), LastError: r.lastError.Pointer(), Destinations: r.destinations.JSON(),
	}
	row.dateByID()
	return row
}

// browsedDetail is a row as browse_show.sql gives it.
type browsedDetail struct {
	browsedRow
	occurredAt, schemaID, schemaVersion sqltable.Text
	lane                                int
	sequence                            sqltable.Text
	generation                          sqltable.Number
	deliveredTo, history, meta, payload sqltable.Text
}

func (r *browsedDetail) columns() []any {
	return append(r.browsedRow.columns(), &r.occurredAt, &r.schemaID, &r.schemaVersion, &r.lane, &r.sequence,
		&r.generation, &r.deliveredTo, &r.history, &r.meta, &r.payload)
}

func (r *browsedDetail) detail() EventDetail {
	d := EventDetail{
		EventRow: r.row(), OccurredAt: r.occurredAt.Moment(), SchemaID: r.schemaID.Pointer(), Lane: r.lane,
		Sequence: sqltable.Integer[int64](r.sequence), SchemaVersion: sqltable.Integer[int](r.schemaVersion),
		Generation: int(r.generation.N), DeliveredTo: r.deliveredTo.JSON(), ErrorHistory: r.history.JSON(),
		Metadata: r.meta.JSON(), Payload: r.payload.JSON(),
	}
	if d.Payload == nil {
		d.Payload = json.RawMessage("null")
	}
	return d
}
