// Package sqlitecold is an SQLite file as the cold path asks it (internal/store/cold): its
// statements, and what its schema says.
//
// Guaranteed: a transaction that writes is the file's only one, so what it has read cannot change
// before it commits. Every statement is a file in sql/, named by its verb, with the index that
// serves it in its header.
package sqlitecold

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	driver "modernc.org/sqlite"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var files = sqlitetable.Files(sqlFiles, cold.Files)

// File is a file that is open: a sqlite.DB.
type File interface {
	sqlitefile.Writer
	Reads() *sql.DB
}

// DB is a cold.Database.
type DB struct{ File File }

var _ cold.Database = DB{}

// Statements implements cold.Database.
func (DB) Statements() (*sqlfile.Set, error) {
	if fingerprinting != nil {
		return nil, fmt.Errorf("register fingerprint function: %w", fingerprinting)
	}
	return files.Set()
}

// Argument implements cold.Database. Times are stamps, and lists are JSON, but for bytes.
func (DB) Argument(n int, v any) (parameter string, value any, err error) {
	switch of := v.(type) {
	case time.Time:
		v = sqlitetime.Stamp(of)
	case []byte:
	case uuid.UUID:
		v = of.String()
	case *uuid.UUID:
		if of != nil {
			v = of.String()
		} else {
			v = nil
		}
	default:
		if list := reflect.ValueOf(v); list.Kind() == reflect.Slice && list.Len() == 0 {
			v = "[]"
		} else if list.Kind() == reflect.Slice {
			text, err := json.Marshal(v)
			if err != nil {
				return "", nil, fmt.Errorf("encode a list: %w", err)
			}
			v = string(text)
		}
	}
	return "?" + strconv.Itoa(n), v, nil
}

var globEscapes = strings.NewReplacer("[", "[[]", "?", "[?]")

// Pattern implements cold.Database: GLOB's, in which only * means something.
func (DB) Pattern(pattern string) string { return globEscapes.Replace(pattern) }

// Quote implements cold.Database.
func (DB) Quote(l outbox.Layout) sqltable.Layout { return sqlitetable.Quote(l) }

// Begin implements cold.Database.
func (d DB) Begin(ctx context.Context, writes bool) (cold.Transaction, error) {
	begin := d.File.Begin
	if !writes {
		begin = func(ctx context.Context) (*sql.Tx, error) {
			return d.File.Reads().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		}
	}
	tx, err := begin(ctx)
	if err != nil {
		return nil, err
	}
	return cold.Of(tx), nil
}

// Alone implements cold.Database.
func (d DB) Alone() cold.Conn { return cold.SQL{SQLTx: d.File.Reads()} }

// Explain implements cold.Database.
func (DB) Explain(err error) error { return sqlitefile.Explain(err) }

// Again implements cold.Database: writers take turns.
func (DB) Again(error) bool { return false }

// Refused implements cold.Database.
func (DB) Refused(err error) (words string, refused bool) {
	var failure *driver.Error
	if !errors.As(err, &failure) {
		return "", false
	}
	return failure.Error(), sqlitefile.OfTheData(err)
}

func (d DB) file() sqlitetable.File {
	return sqlitetable.File{Reads: d.File.Reads(), Explain: sqlitefile.Explain}
}

// Leased implements cold.Database.
func (d DB) Leased(ctx context.Context, table string) (string, error) {
	return d.file().Spelled(ctx, table)
}

// Lettered implements cold.Database.
func (d DB) Lettered(ctx context.Context, table string) (string, error) {
	return d.file().Spelled(ctx, table)
}

// Check implements cold.Database.
func (d DB) Check(ctx context.Context, table string, columns []string) error {
	_, err := d.file().CheckTable(ctx, table, columns)
	return err
}

// Columns implements cold.Database.
func (d DB) Columns(ctx context.Context, l outbox.Layout) ([]sqltable.Column, error) {
	return d.file().StoredColumns(ctx, l)
}

// Ordered implements cold.Database: a position is the rowid or has an index, or no relay could
// serve the table.
func (DB) Ordered(context.Context, string, string) (bool, error) { return true, nil }

// Visible implements cold.Database: there is no row-level security.
func (DB) Visible(context.Context, string) error { return nil }

// deadNames is what the statements of a row's death are given.
type deadNames struct {
	sqltable.Layout
	Columns []sqltable.Column
}

// Bury implements cold.Database. No lease is asked for: a relay that has claimed the rows settles
// some that are not undelivered any more, and changes nothing.
func (d DB) Bury(ctx context.Context, tx *cold.Tx, l outbox.Layout, dead []outbox.Outcome) (n int, err error) {
	columns, err := d.file().CheckTable(ctx, l.Table, sqltable.Names(l))
	if err != nil {
		return 0, err
	}
	names := deadNames{sqlitetable.Quote(l), sqlitetable.KeptColumns(columns, l.Payload)}
	run := func(name string, args ...any) (bool, error) {
		statement, err := files.Statement(name, names)
		if err != nil {
			return false, err
		}
		n, err := tx.Exec(ctx, statement, args...)
		return n > 0, err
	}
	now := sqlitetime.Stamp(time.Now())
	for i := range dead {
		died, err := sqlitetable.Die(ctx, Tx(tx), &dead[i], l.Table, now, run)
		if err != nil {
			return 0, fmt.Errorf("event %s: %w", dead[i].Record.ID, err)
		}
		if died {
			n++
		}
	}
	return n, nil
}

// Tx is the *sql.Tx of a transaction that Begin has opened.
func Tx(tx *cold.Tx) *sql.Tx {
	begun, _ := tx.Conn.(cold.Begun)
	of, _ := begun.SQLTx.(*sql.Tx)
	return of
}
