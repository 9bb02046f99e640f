package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Dialect is a database whose tables grow old. Its Statements are retention_lease, _release, _walk
// and those of Removes.
type Dialect interface {
	cold.Database
	// Reads runs statements that only read.
	Reads() cold.Conn
	// Change runs fn, which changes something; where several statements do, in a transaction.
	// patient says that nobody waits for it.
	Change(ctx context.Context, patient bool, fn func(*cold.Tx) error) error
	// Removable checks that this role may remove rows of a table and sees them all.
	Removable(ctx context.Context, table string) error
	// Compiles has the database check a statement: a column of a mapped table may not be of the
	// type that its part asks for, or the table be a view.
	Compiles(ctx context.Context, statement string) error
	// Removes are the names of the statements by which rows are swept and removed.
	Removes() []string
	// Sweep finds due rows in the next part of the table, in the order in which they are stored.
	Sweep(ctx context.Context, t *Table, search Search, row func(Row) error) (next string, err error)
	// Refuses tells whether an error of Remove is about rows: others of the batch may be removed.
	Refuses(err error) bool
	// Remove removes those of q.Rows that are still due, if q.Owner holds the table's maintenance,
	// and says how many.
	Remove(ctx context.Context, tx *cold.Tx, q Query) (int, error)
}

// Query is what the statements are given.
type Query struct {
	sqltable.Layout
	Name             string            // of the table, as its maintenance has it
	ByColumn, ByType string            // an index of it gives rows in the order in which they grow old; none: no walks
	Columns          []sqltable.Column // that a row is kept by

	Owner                                uuid.UUID
	TTL, Least, Age                      int64 // microseconds, for who asks the database's clock
	Now, Ends, Farthest, Before, LeastAt time.Time
	Removed                              int64
	Swept                                bool

	After            *string // nil: from the beginning
	Limit            int
	Content, Archive bool
	Rows             []Row
	IDs              []uuid.UUID // of Rows

	// The dialect's own.
	Places   any // of Rows
	Parts    []uint32
	From, To string
	FromPart uint32
}

// turns is whose turn it is to look after a table.
type turns struct {
	db    Dialect
	names Query
}

// TurnsOf returns whose turn it is to look after a table.
func TurnsOf(db Dialect, table string) Turns { return turns{db, Query{Name: table}} }

// Table is an outbox table, or that of letters, which old rows can be removed from. It is safe for
// concurrent use.
type Table struct {
	turns
	refused *sync.Map // ids of rows that could not be removed; the next sweep tries them again
}

var _ Store = (*Table)(nil)

// Open returns a table, or that of Letters, after checking that this role may remove its rows and
// sees them all. Errors are an *outbox.SchemaError, ErrNoAge, outbox.ErrRowsHidden or
// outbox.ErrNotAllowed if waiting does not cure them.
func Open(ctx context.Context, db Dialect, layout outbox.Layout) (*Table, error) {
	// The index of replay times is there for this. Letters with the time of a page's last one may
	// wait for the next run.
	orders := []Query{{ByColumn: layout.DeliveredAt, ByType: "timestamptz"}}
	if layout.Table != Letters().Table {
		if err := layout.Validate(); err != nil {
			return nil, err
		}
		if !layout.KeepsState() {
			return nil, fmt.Errorf("remove rows of %s: it is a log, of which relays truncate old parts: set their retention",
				layout.Table)
		}
		if layout.DeliveredAt == "" && layout.WrittenAt == "" {
			return nil, fmt.Errorf("remove rows of %s: %w: give its layout delivered_at or written_at", layout.Table, ErrNoAge)
		}
		orders = []Query{{ByColumn: layout.Position, ByType: "bigint"}, {ByColumn: layout.ID, ByType: "uuid"}}
	}
	var err error
	if layout.Table, err = db.Lettered(ctx, layout.Table); err != nil {
		return nil, err
	}
	for _, t := range []sqltable.Needed{
		{Table: layout.Table, Columns: sqltable.Names(layout)},
		{Table: "outbox_maintenance", Columns: []string{"ran_at", "swept_at"}}, sqltable.Archive,
	} {
		if err := db.Check(ctx, t.Table, t.Columns); err != nil {
			return nil, err
		}
	}
	if err := db.Removable(ctx, layout.Table); err != nil {
		return nil, err
	}
	t := &Table{turns{db, Query{Layout: db.Quote(layout), Name: layout.Table}}, new(sync.Map)}
	if t.names.Columns, err = db.Columns(ctx, layout); err != nil {
		return nil, err
	}
	if err := t.order(ctx, orders); err != nil {
		return nil, err
	}
	return t, t.check(ctx)
}

// order finds the first of some orders that an index gives.
func (t *Table) order(ctx context.Context, orders []Query) error {
	for _, by := range orders {
		ordered, err := t.db.Ordered(ctx, t.names.Name, by.ByColumn)
		if err != nil {
			return err
		}
		if ordered || by.ByType == "timestamptz" {
			t.names.ByColumn = t.db.Quote(outbox.Layout{Position: by.ByColumn}).Position
			t.names.ByType = by.ByType
			return nil
		}
	}
	return nil
}

// check has the database check the statements.
func (t *Table) check(ctx context.Context) error {
	statements := t.db.Removes()
	if t.names.ByColumn != "" {
		statements = append(statements, "retention_walk")
	}
	for _, name := range statements {
		text, _, err := cold.Statement(t.db, name, t.names)
		if err == nil {
			err = t.db.Compiles(ctx, text)
		}
		if err != nil {
			return fmt.Errorf("check statements for %s, a column is not of the type that its part in the layout asks for: %w",
				t.names.Name, err)
		}
	}
	return nil
}

// Lease implements Turns.
func (t turns) Lease(ctx context.Context, request LeaseRequest) (lease Lease, err error) {
	err = t.db.Change(ctx, false, func(tx *cold.Tx) error {
		q, now := t.names, time.Now() // read in the transaction, which may have waited
		q.Owner, q.TTL, q.Least = request.Owner, request.TTL.Microseconds(), request.Least.Microseconds()
		q.Now, q.Ends, q.LeastAt = now, now.Add(request.TTL), now.Add(-request.Least)
		q.Farthest = sqlitetime.Farthest(now, request.TTL)
		var since int64 // microseconds
		err := tx.One(ctx, "retention_lease", q, &since)
		if errors.Is(err, cold.ErrNoRow) {
			return nil
		}
		lease = Lease{Held: err == nil, SinceSweep: time.Duration(since) * time.Microsecond}
		return err
	})
	if err != nil {
		return Lease{}, fmt.Errorf("lease maintenance of %s: %w", t.names.Name, t.db.Explain(err))
	}
	return lease, nil
}

// Release implements Turns.
func (t turns) Release(ctx context.Context, owner uuid.UUID, done Done) error {
	q := t.names
	q.Owner, q.Removed, q.Swept = owner, done.Rows, done.Swept
	err := t.db.Change(ctx, false, func(tx *cold.Tx) error {
		_, err := tx.Change(ctx, "retention_release", q)
		return err
	})
	if err != nil {
		return fmt.Errorf("release maintenance of %s: %w", t.names.Name, t.db.Explain(err))
	}
	return nil
}

// Find implements Store.
func (t *Table) Find(ctx context.Context, search Search, row func(Row) error) (next string, err error) {
	switch {
	case search.Sweep:
		next, err = t.db.Sweep(ctx, t, search, row)
	case t.names.ByColumn != "":
		next, err = t.Page(ctx, t.Query(search), search.Limit, func(found Row) error {
			if _, known := t.refused.Load(found.ID); known {
				return nil
			}
			return row(found)
		})
	}
	if err != nil {
		return "", fmt.Errorf("look for old rows of %s: %w", t.names.Name, t.db.Explain(err))
	}
	return next, nil
}

// Query is what a search gives its statement.
func (t *Table) Query(search Search) Query {
	q := t.names
	q.Age, q.Before = search.OlderThan.Microseconds(), time.Now().Add(-search.OlderThan)
	q.Limit, q.Content = search.Limit, search.Content
	if search.After != "" {
		q.After = &search.After
	}
	return q
}

var errFull = errors.New("the page is full")

// Page looks at q.Limit rows in the order of q.ByColumn, and takes at most so many that are due.
func (t *Table) Page(ctx context.Context, q Query, take int, row func(Row) error) (next string, err error) {
	seen, taken, someOld := 0, 0, false
	err = cold.In(t.db, t.db.Reads()).Each(ctx, "retention_walk", q, func(rows cold.Rows) error {
		var found Row
		var id, content, place sqltable.Text
		var due, old bool
		if err := rows.Scan(&found.Place, &found.Part, &id, &found.Position, &content, &place, &due, &old); err != nil {
			return err
		}
		seen++
		someOld, next = someOld || old, place.S
		if !due {
			return nil
		}
		found.ID, _ = sqltable.ParseID(id)
		if q.Content {
			found.Content = []byte(content.S)
		}
		if err := row(found); err != nil {
			return err
		}
		if taken++; taken == take {
			return errFull // what follows is left to the next page
		}
		return nil
	})
	if errors.Is(err, errFull) {
		return next, nil
	}
	// Nothing bounds positions by time. After a page without anything old, what follows is newer
	// still; where it is not, a later run or the next sweep gets to it. Ids and times are bounded
	// by the statement.
	if err != nil || seen < q.Limit || q.ByType == "bigint" && !someOld {
		return "", err
	}
	return next, nil
}

// Remove implements Store. A batch that is refused is removed in halves, each in a transaction of
// its own, until the refused rows are alone.
func (t *Table) Remove(ctx context.Context, removal Removal) (done Removed, err error) {
	n, err := t.remove(ctx, removal)
	switch half := len(removal.Rows) / 2; {
	case err == nil:
		return Removed{Rows: n}, nil
	case !t.db.Refuses(err):
		return Removed{}, err
	case half == 0:
		t.refused.Store(removal.Rows[0].ID, nil)
		return Removed{Refused: 1, Refusal: err}, nil
	default:
		for _, rows := range [][]Row{removal.Rows[:half], removal.Rows[half:]} {
			removal.Rows = rows
			part, err := t.Remove(ctx, removal)
			done.Rows, done.Refused = done.Rows+part.Rows, done.Refused+part.Refused
			done.Refusal = cmp.Or(done.Refusal, part.Refusal)
			if err != nil {
				return done, err
			}
		}
		return done, nil
	}
}

func (t *Table) remove(ctx context.Context, removal Removal) (n int, err error) {
	err = t.db.Change(ctx, true, func(tx *cold.Tx) error {
		q := t.Query(Search{OlderThan: removal.OlderThan})
		q.Now, q.Owner, q.Archive, q.Rows = time.Now(), removal.Owner, removal.Archive, removal.Rows
		for _, row := range removal.Rows {
			q.IDs = append(q.IDs, row.ID)
		}
		n, err = t.db.Remove(ctx, tx, q)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("remove old rows of %s: %w", t.names.Name, t.db.Explain(err))
	}
	return n, nil
}

// Audit records in outbox_audit that somebody removed rows by hand.
func (t *Table) Audit(ctx context.Context, actor string, olderThan time.Duration, done Report) error {
	err := t.db.Change(ctx, false, func(tx *cold.Tx) error {
		return tx.Record(ctx, cold.Action{Actor: actor, Action: "purge", Rows: int(min(done.Rows, math.MaxInt32)),
			Filter: map[string]any{"table": done.Table, "older_than": olderThan.String()},
			Detail: map[string]any{"action": done.Action, "files": done.Files}})
	})
	if err != nil {
		return fmt.Errorf("record the purge of %s in outbox_audit: %w", t.names.Name, t.db.Explain(err))
	}
	return nil
}
