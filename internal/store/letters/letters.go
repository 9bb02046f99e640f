// Package letters is the table of dead letters (job_dlq) of any database: to read, to clear, to
// collect, and to put back.
//
// Guaranteed: a page of a replay, a discard, a purge or a collection is one transaction with its
// record in outbox_audit. Letters of an event are never parted between two pages.
//
// Not guaranteed: that a list is cheap. A filter by error or fingerprint, and Stats, read every
// letter that the rest of the filter leaves.
package letters

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/replayplace"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Store is a deadletter.Store. It is safe for concurrent use.
type Store struct {
	db     cold.Database
	tables map[string]table
	jobs   func(context.Context, *cold.Tx, deadletter.Letter) error
	hidden bool // row-level security shows this role the letters of one tenant at a time
}

var _ deadletter.Store = (*Store)(nil)

// subscribed is what subscriptions have fetched of a log. An event that is given up leaves it, and
// comes back by a replay, to its subscription alone. One that is given counts as delivered.
var subscribed = outbox.Layout{
	Table: "outbox_subscription_events",
	ID:    "id", Position: "number", Topic: "event_topic", Payload: "payload",
	Key: "event_key", KeyScope: []string{"subscription", "order_key"},
	Generation: "generation", DeliveredAt: "until",
	Attempts: "attempts", NextRetryAt: "next_at", ErrorHistory: "error_history",
}

// table is an outbox table that letters come from.
type table struct {
	layout  outbox.Layout
	quoted  sqltable.Layout
	columns []sqltable.Column // what an INSERT may name
	hidden  bool
}

// Open returns the letters of a database after checking that its tables fit. Layouts are of the
// tables whose letters can be replayed; one that does not exist is passed over. jobs gives a job
// back to its runner; nil: letters of jobs are skipped. A table that is older than this program
// needs is an *outbox.SchemaError.
func Open(
	ctx context.Context, db cold.Database, layouts []outbox.Layout,
	jobs func(context.Context, *cold.Tx, deadletter.Letter) error,
) (*Store, error) {
	d := &Store{db: db, tables: map[string]table{}, jobs: jobs}
	if err := db.Check(ctx, "job_dlq", []string{"position", "origin"}); err != nil {
		return nil, err
	}
	if err := db.Check(ctx, "outbox_audit", nil); err != nil {
		return nil, err
	}
	var err error
	if d.hidden, err = cold.Hidden(ctx, db, "job_dlq"); err != nil {
		return nil, err
	}
	for _, own := range []outbox.Layout{outbox.DeliveriesOf("", ""), subscribed} {
		if !slices.ContainsFunc(layouts, func(l outbox.Layout) bool { return strings.EqualFold(l.Table, own.Table) }) {
			layouts = append(slices.Clone(layouts), own)
		}
	}
	for _, l := range layouts {
		if err := d.open(ctx, l); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// open adds a table, if it is there.
func (d *Store) open(ctx context.Context, l outbox.Layout) (err error) {
	if err := l.Validate(); err != nil {
		return err
	}
	if l.Table, err = d.db.Lettered(ctx, l.Table); err != nil {
		return err
	}
	err = d.db.Check(ctx, l.Table, sqltable.Names(l))
	var schema *outbox.SchemaError
	if errors.As(err, &schema) && len(schema.Missing) == 0 {
		return nil
	} else if err != nil {
		return err
	}
	t := table{layout: l, quoted: d.db.Quote(l)}
	if t.hidden, err = cold.Hidden(ctx, d.db, l.Table); err != nil {
		return err
	}
	if t.columns, err = d.db.Columns(ctx, l); err != nil {
		return err
	}
	d.tables[l.Table] = t
	return nil
}

// Query is what the files dlq_*.sql are given.
type Query struct {
	sqltable.Layout // of the table that letters come from, where there is one
	RawTable        string
	Columns         []sqltable.Column
	KeyColumns      []sqltable.Column // those that make the key
	Owed            bool              // it has a row of an event for each who gets it, and a letter belongs to one
	InRow           served            // of a row e
	InOrigin        served            // of a row that letter c kept, as dlq_insert.sql names them
	Kept            served            // their names as texts
	Replace         bool              // the payload
	Body            string

	F                deadletter.Filter
	A                deadletter.ActionFilter
	State            string
	IDs              []uuid.UUID
	Limit            int
	After            *replayplace.Place
	Now              time.Time
	Cut              time.Time // what counts is older
	Age              int64     // microseconds, where the database's clock says what is older
	Since            string    // column
	Reason           string
	DefaultTenant    string
	SinceID, UntilID uuid.UUID // of F
	CutID            uuid.UUID
}

// served are the expressions of a row's destinations, and of those that have it.
type served struct{ Destinations, DeliveredTo string }

// filled sets what files need and a filter says otherwise. Ids are UUIDv7: the first with a time is
// the bound of that time.
func (q *Query) filled() *Query {
	q.SinceID, q.UntilID, q.CutID = firstID(q.F.Since), firstID(q.F.Until), firstID(q.Cut)
	return q
}

func firstID(t time.Time) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(max(t.UnixMilli(), 0))<<16)
	return id
}

// Of is q for the letters of a table.
func (d *Store) Of(table string, q Query) *Query { return d.tables[table].query(q) }

func (t table) query(q Query) *Query {
	q.Layout, q.Columns, q.RawTable = t.quoted, t.columns, t.layout.Table
	if q.Destinations != "" {
		q.InRow, q.InOrigin = served{"e." + q.Destinations, "e." + q.DeliveredTo}, served{"c.goes", "c.served"}
		q.Kept = served{q.column(q.Destinations).Text, q.column(q.DeliveredTo).Text}
	}
	q.Owed = t.layout.Table == outbox.DeliveriesOf("", "").Table || t.layout.Table == subscribed.Table
	for _, name := range append([]string{q.Key, q.KeylessScope}, q.KeyScope...) {
		c := q.column(name)
		if name != "" && name != q.Position && !slices.Contains(q.KeyColumns, c) {
			q.KeyColumns = append(q.KeyColumns, c)
		}
	}
	return q.filled()
}

// column finds the column of a quoted name.
func (q *Query) column(name string) sqltable.Column {
	if i := slices.IndexFunc(q.Columns, func(c sqltable.Column) bool { return c.Name == name }); i >= 0 {
		return q.Columns[i]
	}
	return sqltable.Column{Name: name, Text: "NULL"} // a generated column, which no row is kept by
}

// selected returns the query of a selection. What it chooses is pending, unless discarded letters
// are named.
func selected(s deadletter.Selection) (*Query, error) {
	q := &Query{F: s.Filter, IDs: s.IDs, State: string(deadletter.StatePending)}
	if s.State != "" && s.State != deadletter.StatePending {
		return nil, fmt.Errorf("%w: only pending letters can be chosen by a filter, not %s ones", deadletter.ErrFilter,
			s.State)
	}
	if s.Discarded {
		if len(s.IDs) == 0 {
			return nil, fmt.Errorf("%w: discarded letters must be named by their ids", deadletter.ErrFilter)
		}
		q.State = "not replayed"
	}
	return q.filled(), nil
}

// recorded is what the record has of a selection: of a part of a set how the set was chosen, not
// its ids.
func recorded(s deadletter.Selection) deadletter.Selection {
	if s.All || s.Filter != (deadletter.Filter{}) {
		s.IDs = nil
	}
	return s
}

// read runs fn in a transaction that reads, as the tenant where row-level security asks for one.
func (d *Store) read(ctx context.Context, tenant string, fn func(*cold.Tx) error) error {
	return d.in(ctx, cold.Read, tenant, fn)
}

func (d *Store) write(ctx context.Context, tenant string, fn func(*cold.Tx) error) error {
	return d.in(ctx, cold.Write, tenant, fn)
}

func (d *Store) in(
	ctx context.Context, run func(context.Context, cold.Database, func(*cold.Tx) error) error, tenant string,
	fn func(*cold.Tx) error,
) error {
	if !d.hidden {
		return run(ctx, d.db, fn)
	}
	if tenant == "" {
		return fmt.Errorf("%w of job_dlq, which sees one tenant at a time: name a tenant, or GRANT "+
			"outbox_operator to it "+
			"(made by: outbox migrate roles)", outbox.ErrRowsHidden)
	}
	return run(ctx, d.db, func(tx *cold.Tx) error {
		if err := tx.SpeakFor(ctx, tenant); err != nil {
			return err
		}
		return fn(tx)
	})
}
