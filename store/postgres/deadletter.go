package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/replayplace"
)

// deadLetters is the table job_dlq.
type deadLetters struct {
	pool   *pgxpool.Pool
	tables map[string]deadTable
	jobs   func(context.Context, pgx.Tx, deadletter.Letter) error
	hidden bool // row-level security shows this role the letters of one tenant at a time
}

var _ deadletter.Store = (*deadLetters)(nil)

// DeadLettersConfig says where letters may be put back. The zero value is enough to look at them.
type DeadLettersConfig struct {
	// Layouts are of the tables whose letters can be replayed. outbox_deliveries, which has those of routed tables and of
	// logs, need not be among them. A table that does not exist is passed over: its letters are skipped.
	Layouts []outbox.Layout
	// ReplayJob gives a job back to its runner inside tx, in which the letter is marked as replayed too: both happen or
	// neither. An error, whose text the operator is shown, leaves this letter as it is, undoes what was done in tx for
	// it, and does not stop the others. Where it is nil, the letters of jobs are skipped.
	ReplayJob func(ctx context.Context, tx pgx.Tx, letter deadletter.Letter) error
}

// deadTable is an outbox table that letters come from.
type deadTable struct {
	layout  outbox.Layout
	columns []string // quoted: what an INSERT may name
	hidden  bool
}

// OpenDeadLetters returns the dead letters of a database, the table job_dlq, after checking that its tables fit. pool
// should not be from Connect, whose sessions are made for relays. A table that is older than this program needs is an
// *outbox.SchemaError. The store is safe for concurrent use.
func OpenDeadLetters(ctx context.Context, pool *pgxpool.Pool, cfg DeadLettersConfig) (deadletter.Store, error) {
	d := &deadLetters{pool: pool, tables: map[string]deadTable{}, jobs: cfg.ReplayJob}
	if err := pgschema.CheckTable(ctx, pool, "job_dlq", []string{"position", "origin"}); err != nil {
		return nil, err
	}
	if err := pgschema.CheckTable(ctx, pool, "outbox_audit", nil); err != nil {
		return nil, err
	}
	var err error
	if d.hidden, err = pgschema.RowsHidden(ctx, pool, "job_dlq"); err != nil {
		return nil, err
	}
	layouts := cfg.Layouts
	owed := outbox.DeliveriesOf("", "")
	if !slices.ContainsFunc(layouts, func(l outbox.Layout) bool { return l.Table == owed.Table }) {
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
	var columns []string
	for _, c := range l.Columns() {
		columns = append(columns, c)
	}
	err := pgschema.CheckTable(ctx, d.pool, l.Table, columns)
	var schema *outbox.SchemaError
	if errors.As(err, &schema) && len(schema.Missing) == 0 {
		return nil
	} else if err != nil {
		return err
	}
	t := deadTable{layout: l}
	if t.hidden, err = pgschema.RowsHidden(ctx, d.pool, l.Table); err != nil {
		return err
	}
	if t.columns, err = pgtable.StoredColumns(ctx, d.pool, l.Table); err != nil {
		return err
	}
	if l.IsLog() { // a replay is a new row, for which the database draws these
		for _, drawn := range []string{l.Transaction, l.Position, l.WrittenAt, "part"} {
			quoted := pgx.Identifier{drawn}.Sanitize()
			t.columns = slices.DeleteFunc(t.columns, func(c string) bool { return c == quoted })
		}
	}
	d.tables[l.Table] = t
	return nil
}

// letterQuery is what the templates dlq_*.sql are given, and collects the arguments that they add.
type letterQuery struct {
	quotedLayout // of the table that letters come from, where there is one
	Columns      []string
	RawTable     string // its name as letters have it
	TableName    string // the same, as a text in SQL
	Owed         bool   // it is outbox_deliveries, which has a row of an event for each sink and destination
	Replace      bool   // the payload

	F         deadletter.Filter
	A         deadletter.ActionFilter
	State     string
	IDs       []uuid.UUID
	Limit     int
	After     *replayplace.Place
	OlderThan time.Time
	Age       int64  // microseconds
	Since     string // column
	Reason    string

	DefaultTenant string

	args []any
}

// Call implements sqlfile.Caller: arg adds a value to the arguments of the statement and returns the parameter that
// stands for it, like a pattern likewise; first_id returns the least UUIDv7 of a time.
func (q *letterQuery) Call(function string, operand any) (any, error) {
	at, isTime := operand.(time.Time)
	text, isText := operand.(string)
	switch {
	case function == "like" && isText:
		return q.Call("arg", pgtable.Like(text))
	case function == "arg":
		q.args = append(q.args, operand)
		return fmt.Sprintf("$%d", len(q.args)), nil
	case function == "first_id" && isTime:
		return firstID(at), nil
	}
	return nil, fmt.Errorf("there is no %s of %T", function, operand)
}

func firstID(t time.Time) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(max(t.UnixMilli(), 0))<<16)
	return id
}

// render returns a statement and its arguments.
func (q *letterQuery) render(name string) (sql string, args []any, err error) {
	t, err := parseSQL()
	if err != nil {
		return "", nil, err
	}
	q.args = nil
	sql, err = t.Statement(name, q)
	return sql, q.args, err
}

// selected returns the query of a selection. What it chooses is pending, unless discarded letters are named.
func selected(s deadletter.Selection) (letterQuery, error) {
	q := letterQuery{F: s.Filter, IDs: s.IDs, State: string(deadletter.StatePending)}
	if s.State != "" && s.State != deadletter.StatePending {
		return q, fmt.Errorf("%w: only pending letters can be chosen by a filter, not %s ones", deadletter.ErrFilter, s.State)
	}
	if s.Discarded {
		if len(s.IDs) == 0 {
			return q, fmt.Errorf("%w: discarded letters must be named by their ids", deadletter.ErrFilter)
		}
		q.State = "not replayed"
	}
	return q, nil
}

func (t deadTable) query(q letterQuery) letterQuery {
	q.quotedLayout, q.Columns = quote(t.layout), t.columns
	q.RawTable, q.TableName = t.layout.Table, pgtable.QuoteText(t.layout.Table)
	q.Owed = t.layout.Table == outbox.DeliveriesOf("", "").Table
	return q
}

// inTx runs fn in a transaction, as the tenant where row-level security asks for one. Read committed, whatever the
// session's default: what a page waited for must be seen as it has become.
func (d *deadLetters) inTx(ctx context.Context, tenant string, mode pgx.TxAccessMode, fn func(pgx.Tx) error) error {
	if d.hidden && tenant == "" {
		return fmt.Errorf("%w of job_dlq, which sees one tenant at a time: name a tenant, or GRANT outbox_operator to it "+
			"(made by: outbox migrate roles)", outbox.ErrRowsHidden)
	}
	return pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: mode},
		func(tx pgx.Tx) error {
			if d.hidden {
				if err := pgtable.SpeakFor(ctx, tx, tenant); err != nil {
					return err
				}
			}
			return fn(tx)
		})
}
