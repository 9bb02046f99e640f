package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/replayplace"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
)

// deadLetters is the table job_dlq.
type deadLetters struct {
	db     *DB
	tables map[string]deadTable
	jobs   func(ctx context.Context, tx *sql.Tx, letter deadletter.Letter) error
}

var _ deadletter.Store = (*deadLetters)(nil)

// DeadLettersConfig says where letters may be put back. The zero value is enough to look at them.
type DeadLettersConfig struct {
	// Layouts are of the tables whose letters can be replayed. outbox_deliveries, which has those of routed tables, need
	// not be among them. A table that does not exist is passed over: its letters are skipped.
	Layouts []outbox.Layout
	// ReplayJob gives a job back to its runner inside tx, in which the letter is marked as replayed too: both happen or
	// neither. An error, whose text the operator is shown, leaves this letter as it is, undoes what was done in tx for
	// it, and does not stop the others. Nil: letters of jobs are skipped.
	ReplayJob func(ctx context.Context, tx *sql.Tx, letter deadletter.Letter) error
}

// deadTable is an outbox table that letters come from.
type deadTable struct {
	layout  outbox.Layout
	columns []sqlitetable.QuotedColumn
}

// OpenDeadLetters returns the dead letters of a file, the table job_dlq, after checking that its tables fit. A table
// that is older than this program needs is an *outbox.SchemaError.
//
// The store is safe for concurrent use. A page of a replay, a discard or a purge is one write transaction, and holds up
// other writers as long as it takes. A filter by error or fingerprint, and Stats, read every letter that the rest of
// the filter leaves.
func OpenDeadLetters(ctx context.Context, db *DB, cfg DeadLettersConfig) (deadletter.Store, error) {
	if fingerprinting != nil {
		return nil, fmt.Errorf("register fingerprint function: %w", fingerprinting)
	}
	d := &deadLetters{db: db, tables: map[string]deadTable{}, jobs: cfg.ReplayJob}
	if _, err := db.file().CheckTable(ctx, "job_dlq", []string{"position", "origin"}); err != nil {
		return nil, err
	}
	if _, err := db.file().CheckTable(ctx, "outbox_audit", nil); err != nil {
		return nil, err
	}
	layouts := cfg.Layouts
	owed := outbox.DeliveriesOf("", "")
	if !slices.ContainsFunc(layouts, func(l outbox.Layout) bool { return strings.EqualFold(l.Table, owed.Table) }) {
		layouts = append(slices.Clone(layouts), owed)
	}
	for _, l := range layouts {
		if err := d.open(ctx, l); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// open adds a table, if it is there.
func (d *deadLetters) open(ctx context.Context, l outbox.Layout) error {
	if err := l.Validate(); err != nil {
		return err
	}
	var err error
	if l.Table, err = d.db.file().Spelled(ctx, l.Table); err != nil { // as the letters have it
		return err
	}
	_, err = d.db.file().CheckTable(ctx, l.Table, sqlitetable.ColumnNames(l))
	var schema *outbox.SchemaError
	if errors.As(err, &schema) && len(schema.Missing) == 0 {
		return nil
	} else if err != nil {
		return err
	}
	columns, err := d.db.file().StoredColumns(ctx, l)
	if err != nil {
		return err
	}
	d.tables[l.Table] = deadTable{layout: l, columns: columns}
	return nil
}

// letterQuery is what the templates dlq_*.sql are given.
type letterQuery struct {
	sqlitetable.Layout // of the table that letters come from, where there is one
	sqlitetable.Arguments
	Columns    []sqlitetable.QuotedColumn
	KeyColumns []sqlitetable.QuotedColumn // those that make the key
	RawTable   string                     // its name as letters have it
	TableName  string                     // the same, as a text in SQL
	InRow      servedColumns              // of a row e
	InOrigin   servedColumns              // of a row that letter c kept, as dlq_insert.sql names them
	Owed       bool                       // it is outbox_deliveries, with a row of an event for each sink and destination
	Replace    bool                       // the payload

	F      deadletter.Filter
	A      deadletter.ActionFilter
	State  string
	IDs    []uuid.UUID
	Limit  int
	After  *replayplace.Place
	Rest   bool // after the table of After
	Now    time.Time
	Cut    time.Time // what counts is older
	Since  string    // column
	Reason string

	DefaultTenant string
}

// Call implements sqlfile.Caller: arg as arguments has it, first_id returns the least UUIDv7 of a time, and text_of
// what a letter has the column of a quoted name by.
func (q *letterQuery) Call(function string, operand any) (any, error) {
	switch of := operand.(type) {
	case time.Time:
		if function == "first_id" {
			return firstID(of), nil
		}
	case string:
		if function == "text_of" {
			return q.column(of).Text, nil
		}
	}
	return q.Arguments.Call(function, operand)
}

func firstID(t time.Time) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(max(t.UnixMilli(), 0))<<16)
	return id
}

// servedColumns are the expressions that dlq_served is made of.
type servedColumns struct{ Destinations, DeliveredTo string }

// render returns a statement; its arguments are q.Args then.
func (q *letterQuery) render(name string) (string, error) {
	t, err := parseSQL()
	if err != nil {
		return "", err
	}
	q.Args = nil
	return t.Statement(name, q)
}

// each runs one of the dlq statements and calls row for each row.
func (q *letterQuery) each(ctx context.Context, tx *sql.Tx, name string, row func(*sql.Rows) error) error {
	statement, err := q.render(name)
	if err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, statement, q.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// selected returns the query of a selection. What it chooses is pending, unless discarded letters are named.
func selected(s deadletter.Selection) (*letterQuery, error) {
	q := &letterQuery{F: s.Filter, IDs: s.IDs, State: string(deadletter.StatePending)}
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
	return q, nil
}

// query is q for the letters of a table.
func (t deadTable) query(q letterQuery) *letterQuery {
	q.Layout, q.Columns = sqlitetable.Quote(t.layout), t.columns
	if q.Destinations != "" {
		q.InRow, q.InOrigin = servedColumns{"e." + q.Destinations, "e." + q.DeliveredTo}, servedColumns{"c.goes", "c.served"}
	}
	q.RawTable, q.TableName = t.layout.Table, sqlitetable.QuoteText(t.layout.Table)
	q.Owed = t.layout.Table == outbox.DeliveriesOf("", "").Table
	for _, name := range append([]string{t.layout.Key}, t.layout.KeyScope...) {
		c := q.column(sqlitetable.QuoteName(name))
		if name != "" && name != t.layout.Position && !slices.Contains(q.KeyColumns, c) {
			q.KeyColumns = append(q.KeyColumns, c)
		}
	}
	return &q
}

// column finds the column of a quoted name.
func (q *letterQuery) column(name string) sqlitetable.QuotedColumn {
	if i := slices.IndexFunc(q.Columns, func(c sqlitetable.QuotedColumn) bool { return c.Name == name }); i >= 0 {
		return q.Columns[i]
	}
	return sqlitetable.QuotedColumn{Name: name, Text: "NULL"} // a generated column, which no row is kept by
}
