package cold

import (
	"context"
	"embed"
	"errors"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Files are the statements that are the same in every database. What a database says in its own
// words it defines for them, as a template: among, like, text, column_text, number, uuid,
// uuid_of_text, at, now, login, app_of, is_of_tenant, some_error_has, last_error, fingerprint,
// undelivered, dead_tenant and dead_silent.
//
//go:embed sql/*.sql
var Files embed.FS

// Language is how a statement is said to a database.
type Language interface {
	// Statements are the files of SQL. In them arg makes an argument of a value, and pattern one of
	// a pattern in which * stands for any text.
	Statements() (*sqlfile.Set, error)
	// Argument returns the parameter of the argument of number n, counted from 1, and the value as
	// the driver takes it.
	Argument(n int, v any) (parameter string, value any, err error)
	// Pattern is a pattern as the database matches it.
	Pattern(pattern string) string
}

// Database is one database. It is safe for concurrent use.
type Database interface {
	Language
	// Quote is a layout as the files have it.
	Quote(l outbox.Layout) sqltable.Layout
	// Begin starts a transaction: one that writes, or one that sees one state and only reads.
	Begin(ctx context.Context, writes bool) (Transaction, error)
	// Alone runs single statements that read, each in a transaction of its own.
	Alone() Conn

	// Explain gives an error the name that callers branch on, where it has one.
	Explain(err error) error
	// Again tells of an error that ended a transaction whether the same may well succeed now.
	Again(err error) bool
	// Refused tells whether the database did not take what a row contains, and its words.
	Refused(err error) (words string, refused bool)

	// Leased is the one name of a table that has several: the one that its lanes are leased under.
	// Lettered is the one that its letters have. The name of a table that is not there stays as it
	// is.
	Leased(ctx context.Context, table string) (string, error)
	Lettered(ctx context.Context, table string) (string, error)
	// Check answers with an *outbox.SchemaError if a table is not there or lacks one of the
	// columns.
	Check(ctx context.Context, table string, columns []string) error
	// Columns are those that a row is kept by, quoted: all but generated ones.
	Columns(ctx context.Context, l outbox.Layout) ([]sqltable.Column, error)
	// Ordered tells whether an index gives a table's rows in the order of a column.
	Ordered(ctx context.Context, table, column string) (bool, error)
	// Visible answers with outbox.ErrRowsHidden if row-level security shows this role not all of a
	// table's rows.
	Visible(ctx context.Context, table string) error
	// Bury makes undelivered rows, which the transaction has locked, dead letters, and says how
	// many.
	Bury(ctx context.Context, tx *Tx, l outbox.Layout, dead []outbox.Outcome) (int, error)
}

// Conn runs statements: a driver's connection, in a transaction or not.
type Conn interface {
	Query(ctx context.Context, statement string, args ...any) (Rows, error)
	Exec(ctx context.Context, statement string, args ...any) (changed int, err error)
}

// Transaction is a Conn that can be ended.
type Transaction interface {
	Conn
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Rows are what a statement returns.
type Rows interface {
	Next() bool
	Scan(dst ...any) error
	Err() error
	Close()
}

// Hidden tells whether row-level security shows this role not all of a table's rows.
func Hidden(ctx context.Context, db Database, table string) (bool, error) {
	err := db.Visible(ctx, table)
	if errors.Is(err, outbox.ErrRowsHidden) {
		return true, nil
	}
	return false, err
}
