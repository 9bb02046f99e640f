// Package sqltx is what the stores know of database/sql's transactions, and of those of the
// libraries that are built on it.
//
// Guaranteed: what Open returns is not nil and has a Commit, so it is a transaction and no pool,
// whoever made it. Not guaranteed: that the transaction is still open, and that it is one of the
// right database. The database says so.
package sqltx

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"github.com/outboxrelay/outbox"
)

// bun is a package whose ExecContext does not bind parameters: it looks for ? and writes the values
// into the text, so $1 stays unbound and SQLite's ?1 becomes the second value.
const bun = "github.com/uptrace/bun"

// Open refuses what cannot end a transaction, which is how a pool, a connection or a client is told
// from a transaction. Events that are written through one of those are committed at once, each by
// itself. It returns what statements are to go through, which is tx unless that is bun's.
func Open(tx outbox.SQLTx) (outbox.SQLTx, error) {
	problem := ""
	if _, ends := tx.(interface{ Commit() error }); !ends {
		problem = name(tx) + " has no Commit"
	} else if Nil(tx) {
		problem = name(tx) + " is nil"
	}
	if problem != "" {
		return nil, fmt.Errorf("%w: %s; give the transaction that your change is made in, such as a *sql.Tx "+
			"(docs/guide/writing.md, \"With your ORM\")", outbox.ErrNoTransaction, problem)
	}
	of := reflect.Indirect(reflect.ValueOf(tx))
	if of.Kind() != reflect.Struct || of.Type().PkgPath() != bun {
		return tx, nil
	}
	if field := of.FieldByName("Tx"); field.IsValid() {
		if inner, ok := field.Interface().(*sql.Tx); ok && inner != nil {
			return inner, nil
		}
	}
	return nil, fmt.Errorf("%w: %T holds no *sql.Tx", outbox.ErrNoTransaction, tx)
}

// Nil tells whether tx is nothing or a nil pointer, as a transaction is whose Begin failed. Its
// methods would panic.
func Nil(tx any) bool {
	of := reflect.ValueOf(tx)
	return !of.IsValid() || of.Kind() == reflect.Pointer && of.IsNil()
}

func name(tx outbox.SQLTx) string {
	if tx == nil {
		return "nil"
	}
	return fmt.Sprintf("%T", tx)
}

// QueryRow reads the one row of a query, or sql.ErrNoRows.
func QueryRow(ctx context.Context, tx outbox.SQLTx, query string, args []any, dst ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := rows.Scan(dst...); err != nil {
		return err
	}
	return rows.Close()
}
