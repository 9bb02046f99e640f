package cold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// ErrNoRow says that a statement that has one row found none.
var ErrNoRow = errors.New("no such row")

// Tx is an open transaction, and runs the statements of its Database in it.
type Tx struct {
	Conn

	db Database
}

// attempts is how often a transaction is begun that lost a deadlock. Relays and retention lock rows
// in the order of positions, and a replay those of letters of the same events, in whatever order
// the planner has chosen. (Seen once in a storm of all of them on a busy machine.)
const attempts = 5

// Read runs fn in a transaction that sees one state of the database.
func Read(ctx context.Context, db Database, fn func(*Tx) error) error { return run(ctx, db, false, fn) }

// Ask runs the statement of a file that reads, alone, and calls row for each of its rows.
func Ask(ctx context.Context, db Database, name string, data any, row func(Rows) error) error {
	err := In(db, db.Alone()).Each(ctx, name, data, row)
	if err != nil {
		return db.Explain(err)
	}
	return nil
}

// Write runs fn in a transaction, and commits it; it rolls back if fn fails. fn may run several
// times.
func Write(ctx context.Context, db Database, fn func(*Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := run(ctx, db, true, fn)
		if err == nil || attempt == attempts || !db.Again(err) {
			return err
		}
	}
}

func run(ctx context.Context, db Database, writes bool, fn func(*Tx) error) (err error) {
	conn, err := db.Begin(ctx, writes)
	if err != nil {
		return fmt.Errorf("begin: %w", db.Explain(err))
	}
	ended := false
	defer func() {
		if ended {
			return
		}
		// Also where fn panics: an open transaction would hold up others. ctx may have ended, this
		// must not.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if failed := conn.Rollback(undo); failed != nil && err == nil {
			err = fmt.Errorf("roll back: %w", failed)
		}
	}()
	if err := fn(&Tx{conn, db}); err != nil {
		return db.Explain(err)
	}
	if !writes {
		return nil
	}
	ended = true
	if err := conn.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", db.Explain(err))
	}
	return nil
}

// In runs statements of db on a connection, in the transaction that the caller has opened on it.
func In(db Database, conn Conn) *Tx { return &Tx{conn, db} }

// arguments collects what a file gives its statement.
type arguments struct {
	db   Language
	args []any
}

// Call implements sqlfile.Caller.
func (a *arguments) Call(function string, v any) (any, error) {
	text, isText := v.(string)
	switch {
	case function == "pattern" && isText:
		v = a.db.Pattern(text)
	case function != "arg":
		return nil, fmt.Errorf("there is no %s of %T", function, v)
	}
	parameter, value, err := a.db.Argument(len(a.args)+1, v)
	a.args = append(a.args, value)
	return parameter, err
}

// Statement is the statement of a file, filled in, and its arguments.
func Statement(db Language, name string, data any) (statement string, args []any, err error) {
	files, err := db.Statements()
	if err != nil {
		return "", nil, err
	}
	a := arguments{db: db}
	statement, err = files.StatementWith(name, data, &a)
	return statement, a.args, err
}

// Each runs the statement of a file, and calls row for each of its rows.
func (tx *Tx) Each(ctx context.Context, name string, data any, row func(Rows) error) error {
	statement, args, err := Statement(tx.db, name, data)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// One runs the statement of a file that has one row, or none: ErrNoRow.
func (tx *Tx) One(ctx context.Context, name string, data any, dst ...any) error {
	found := false
	err := tx.Each(ctx, name, data, func(rows Rows) error {
		found = true
		return rows.Scan(dst...)
	})
	if err == nil && !found {
		err = ErrNoRow
	}
	return err
}

// Change runs the statement of a file, and says how many rows it changed.
func (tx *Tx) Change(ctx context.Context, name string, data any) (changed int, err error) {
	statement, args, err := Statement(tx.db, name, data)
	if err != nil {
		return 0, err
	}
	return tx.Exec(ctx, statement, args...)
}

// Savepoint runs fn, and undoes what it did in the transaction if it fails; its error is refused
// then. err says that the transaction is lost.
func (tx *Tx) Savepoint(ctx context.Context, fn func() error) (refused, err error) {
	if _, err := tx.Exec(ctx, "SAVEPOINT part"); err != nil {
		return nil, fmt.Errorf("set savepoint: %w", err)
	}
	if refused = fn(); refused != nil {
		if _, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT part"); err != nil {
			return nil, errors.Join(refused, fmt.Errorf("roll back to savepoint: %w", err))
		}
	}
	if _, err := tx.Exec(ctx, "RELEASE SAVEPOINT part"); err != nil {
		return nil, fmt.Errorf("release savepoint: %w", err)
	}
	return refused, nil
}

// SpeakFor makes the rest of the transaction speak for a tenant, where row-level security asks for
// one.
func (tx *Tx) SpeakFor(ctx context.Context, tenant string) error {
	err := tx.Each(ctx, "tenant", struct{ Tenant string }{tenant}, func(Rows) error { return nil })
	if err != nil {
		return fmt.Errorf("speak for tenant %s: %w", tenant, err)
	}
	return nil
}

// Action is what an operator does, for the record.
type Action struct {
	Actor, Action, Reason string
	Rows                  int // letters or events
	Filter, Detail        any // encoded as JSON; no Detail: nil
}

// Record writes the record of an action, in its transaction.
func (tx *Tx) Record(ctx context.Context, a Action) error {
	id, err := outbox.NewID()
	if err != nil {
		return err
	}
	data := struct {
		Action
		ID             uuid.UUID
		Now            time.Time
		Filter, Detail string
	}{Action: a, ID: id, Now: time.Now()}
	for dst, v := range map[*string]any{&data.Filter: a.Filter, &data.Detail: a.Detail} {
		if v == nil {
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("record action %s: %w", a.Action, err)
		}
		*dst = string(text)
	}
	if _, err := tx.Change(ctx, "audit", data); err != nil {
		return fmt.Errorf("record action %s: %w", a.Action, err)
	}
	return nil
}
