package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/server/crawl"
)

// Database runs the statements of a store, in as few round trips as it can. It is safe for
// concurrent use. A tenant is the one that a transaction speaks for, where row-level security asks;
// "": all.
type Database interface {
	cold.Language
	// Check answers with an *outbox.SchemaError if a table is not there or lacks one of the
	// columns.
	Check(ctx context.Context, table string, columns []string) error
	// Refused tells whether the database did not take a value of a row, and its words.
	Refused(err error) (words string, refused bool)
	// Read asks one question.
	Read(ctx context.Context, tenant string, a Ask) error
	// Write is one transaction of these statements.
	Write(ctx context.Context, tenant string, asks ...Ask) error
	// Change is one transaction, which goes on by what it has read. What fn does not commit is
	// undone.
	Change(ctx context.Context, tenant string, fn func(Tx) error) error
}

// Tx is a transaction that is open. A statement in it sees what those before it have waited for.
type Tx interface {
	Run(ctx context.Context, asks ...Ask) error
	// Commit ends it with these statements.
	Commit(ctx context.Context, asks ...Ask) error
}

// Ask is a statement: its file, the data to fill it in with, and who takes its rows.
type Ask struct {
	Name string
	Data any
	Row  func(Row) error // nil: it has none. errEnough: no more of them
}

// Row is a row of the answer.
type Row interface{ Scan(dst ...any) error }

var errEnough = errors.New("no more rows are wanted")

// Give gives all rows to who takes them, and closes them.
func (a Ask) Give(rows cold.Rows) error {
	defer rows.Close()
	for rows.Next() {
		if err := a.Row(rows); errors.Is(err, errEnough) {
			break
		} else if err != nil {
			return err
		}
	}
	rows.Close()
	return rows.Err()
}

// scanned is a Row that reads into dst, and says that there was one.
func scanned(found *bool, dst ...any) func(Row) error {
	return func(row Row) error {
		*found = true
		return row.Scan(dst...)
	}
}

// moment reads a time of any database, or NULL.
type moment struct{ at **time.Time }

// Scan implements sql.Scanner.
func (m moment) Scan(v any) error {
	var at time.Time
	var err error
	switch v := v.(type) {
	case nil:
		*m.at = nil
		return nil
	case time.Time:
		at = v.UTC()
	case string:
		at, err = sqlitetime.Parse(v)
	default:
		err = fmt.Errorf("read time: it is a %T", v)
	}
	*m.at = &at
	return err
}

// required is a column that is never NULL.
func required(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

// text is JSON as the text that a statement takes, NULL for nil.
func text(json []byte) any {
	if json == nil {
		return nil
	}
	return string(json)
}

// refused makes what the database refuses of a value a *crawl.FieldError. What it is known to
// refuse is found before, by checkJSON or crawl.Service: this is for servers with narrower limits
// (max_stack_depth), and for texts.
func refused(db Database, err error, field string) error {
	if _, is := db.Refused(err); is {
		return &crawl.FieldError{Field: field, Problem: "is refused by the database: it has a character or a number " +
			"that the database does not take, or is too deep or too long"}
	}
	return err
}
