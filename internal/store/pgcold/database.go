// Package pgcold is a PostgreSQL database as the cold path asks it (internal/store/cold): its
// statements, and what its catalog says.
//
// Guaranteed: a transaction that writes is read committed, whatever the session's default, because
// what a page waited for must be seen as it has become. Every statement is a file in sql/, here or
// in internal/store/cold, named by its verb, with its locks and the index that serves it in its
// header.
package pgcold

import (
	"context"
	"embed"
	"errors"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var files = pgtable.Files(sqlFiles, cold.Files)

// DB is a cold.Database. A pool of ordinary sessions is meant, and not one of store/postgres's
// Connect, whose sessions are made for relays.
type DB struct{ Pool *pgxpool.Pool }

var _ cold.Database = DB{}

// Statements implements cold.Database.
func (DB) Statements() (*sqlfile.Set, error) { return files.Set() }

// Argument implements cold.Database.
func (DB) Argument(n int, v any) (parameter string, value any, err error) {
	return "$" + strconv.Itoa(n), v, nil
}

// Pattern implements cold.Database: LIKE's.
func (DB) Pattern(pattern string) string { return pgtable.Likes([]string{pattern})[0] }

// Quote implements cold.Database.
func (DB) Quote(l outbox.Layout) sqltable.Layout { return pgtable.Quote(l) }

// Begin implements cold.Database.
func (d DB) Begin(ctx context.Context, writes bool) (cold.Transaction, error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if writes {
		options = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	}
	tx, err := d.Pool.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return transaction{Conn{tx}, tx}, nil
}

// Alone implements cold.Database.
func (d DB) Alone() cold.Conn { return Conn{d.Pool} }

// Explain implements cold.Database: the server's errors say what they mean.
func (DB) Explain(err error) error { return err }

// Again implements cold.Database.
func (DB) Again(err error) bool { return pgtable.Transient(err) }

// Refused implements cold.Database.
func (DB) Refused(err error) (words string, refused bool) {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return "", false
	}
	return server.Message, pgtable.OfTheData(err)
}

// Leased implements cold.Database.
func (d DB) Leased(ctx context.Context, table string) (string, error) {
	return pgtable.Name(ctx, d.Pool, table)
}

// Lettered implements cold.Database: letters have a table as its relay was told it.
func (DB) Lettered(_ context.Context, table string) (string, error) { return table, nil }

// Check implements cold.Database.
func (d DB) Check(ctx context.Context, table string, columns []string) error {
	return pgschema.CheckTable(ctx, d.Pool, table, columns)
}

// Columns implements cold.Database. A row of a log is put back as a new one, for which the database
// draws some.
func (d DB) Columns(ctx context.Context, l outbox.Layout) (all []sqltable.Column, err error) {
	names, err := pgtable.StoredColumns(ctx, d.Pool, l.Table)
	if err != nil {
		return nil, err
	}
	var drawn []string
	if !l.KeepsState() {
		for _, c := range []string{l.Transaction, l.Position, l.WrittenAt, "part"} {
			drawn = append(drawn, pgtable.QuoteColumn(c))
		}
	}
	for _, name := range names {
		if !slices.Contains(drawn, name) {
			all = append(all, sqltable.Column{Name: name})
		}
	}
	return all, nil
}

// Ordered implements cold.Database.
func (d DB) Ordered(ctx context.Context, table, column string) (bool, error) {
	return pgtable.Ordered(ctx, d.Pool, table, column)
}

// Visible implements cold.Database.
func (d DB) Visible(ctx context.Context, table string) error {
	return pgschema.CheckVisible(ctx, d.Pool, table)
}

// Bury implements cold.Database. No lease is asked for: whoever has claimed the rows settles some
// that are not undelivered any more, and changes nothing. A row that cannot be read gets a letter
// that holds less of it.
func (d DB) Bury(ctx context.Context, tx *cold.Tx, l outbox.Layout, dead []outbox.Outcome) (n int, err error) {
	full := pgtable.Quote(l)
	full.Unheld = true
	reduced := full.Reduced()
	for i, form := range append([]sqltable.Layout{full}, reduced[:]...) {
		refused, failed := tx.Savepoint(ctx, func() (err error) {
			n, err = bury(ctx, tx, l, form, dead)
			return err
		})
		if err = errors.Join(failed, refused); err == nil || !pgtable.OfTheData(refused) {
			break
		}
		if half := len(dead) / 2; i == 0 && half > 0 {
			first, err := d.Bury(ctx, tx, l, dead[:half])
			if err == nil {
				n, err = d.Bury(ctx, tx, l, dead[half:])
			}
			return first + n, err
		}
	}
	return n, err
}

// bury writes the letters of some rows in one form.
func bury(
	ctx context.Context, tx *cold.Tx, l outbox.Layout, form sqltable.Layout, dead []outbox.Outcome,
) (n int, err error) {
	var deaths pgtable.Deaths
	for i := range dead {
		deaths.Add(&dead[i])
	}
	if form.Unreadable {
		deaths.Tenants = []string{eventrow.DefaultTenant}
	}
	if l.App == "" || form.Unreadable { // else the rows have their application
		apps, err := files.Statement("settle_apps", nil)
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, apps, deaths.Tenants); err != nil {
			return 0, err
		}
	}
	settle, err := files.Statement("settle_dead", form)
	if err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, settle, deaths.Unheld(l.Table)...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}

// Querier is a pgx.Tx, a *pgxpool.Pool or a *pgx.Conn.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Conn is a cold.Conn of pgx.
type Conn struct{ Querier }

// Query implements cold.Conn.
func (c Conn) Query(ctx context.Context, statement string, args ...any) (cold.Rows, error) {
	return c.Querier.Query(ctx, statement, args...) //nolint:sqlclosecheck // whoever asks does
}

// Exec implements cold.Conn.
func (c Conn) Exec(ctx context.Context, statement string, args ...any) (int, error) {
	tag, err := c.Querier.Exec(ctx, statement, args...)
	return int(tag.RowsAffected()), err
}

// transaction is a cold.Transaction.
type transaction struct {
	Conn
	tx pgx.Tx
}

// Commit implements cold.Transaction.
func (t transaction) Commit(ctx context.Context) error { return t.tx.Commit(ctx) }

// Rollback implements cold.Transaction.
func (t transaction) Rollback(ctx context.Context) error {
	if err := t.tx.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}

// Tx is the pgx.Tx of a transaction that Begin has opened.
func Tx(tx *cold.Tx) pgx.Tx {
	begun, _ := tx.Conn.(transaction)
	return begun.tx
}
