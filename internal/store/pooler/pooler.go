// Package pooler finds out whether a connection leads to PostgreSQL itself or to a pooler that
// lends a server's session for a transaction. Its Sessions are a pool whose statements have their
// settings either way.
//
// It guarantees that asking changes nothing of a session, and that no session behind a pooler keeps
// settings. It does not guarantee to tell a pooler in session mode from one in transaction mode:
// what works behind the second works behind the first. Tested with PgBouncer 1.18.
package pooler

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed sql/backend.sql
var backendSQL string

//go:embed sql/encoding.sql
var encodingSQL string

// ErrEncoding is the error of a database that cannot store every text.
var ErrEncoding = errors.New("unsupported encoding")

// CheckEncoding returns an ErrEncoding unless the database's encoding is UTF8. Every other one,
// SQL_ASCII too, refuses some valid JSON, which would abort the transaction that writes it.
func CheckEncoding(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	var database, encoding string
	if err := db.QueryRow(ctx, encodingSQL).Scan(&database, &encoding); err != nil || encoding == "UTF8" {
		return err
	}
	return fmt.Errorf("use database %q: %w %s, want UTF8; create a database with TEMPLATE template0 ENCODING 'UTF8' "+
		"and move the data to it with pg_dump and pg_restore", database, ErrEncoding, encoding)
}

// ErrStatementMode is a pooler that changes the session after every statement, so that nothing can
// be a transaction.
var ErrStatementMode = errors.New("the database URL leads to a pooler in statement mode, which lets no transaction " +
	"through: " +
	"set pool_mode=transaction for this database in the pooler, or give the URL of PostgreSQL itself")

// Between tells whether a pooler is between conn and the server. A server tells a new connection
// the id of the process that serves it. A pooler cannot, because that will be another one each
// time, and makes an id up for its own use.
func Between(ctx context.Context, conn *pgx.Conn) (bool, error) {
	pid, err := backend(ctx, conn)
	if err != nil {
		return false, err
	}
	if pid == conn.PgConn().PID() {
		return false, nil
	}
	return true, transactions(ctx, conn)
}

// transactions fails with ErrStatementMode unless a transaction stays with one process.
func transactions(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "BEGIN", pgx.QueryExecModeSimpleProtocol)
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server) && server.Code == "08P01": // protocol_violation, as PgBouncer has it
		return fmt.Errorf("%w: it says: %s", ErrStatementMode, server.Message)
	case err != nil:
		return fmt.Errorf("ask for a transaction: %w", err)
	}
	first, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	second, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	if first != second {
		return ErrStatementMode
	}
	if _, err := conn.Exec(ctx, "COMMIT", pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("end the transaction asked for: %w", err)
	}
	return nil
}

// backend asks by the simple protocol, for which no pooler needs to know of prepared statements.
func backend(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	if err := conn.QueryRow(ctx, backendSQL, pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return 0, fmt.Errorf("ask for the server's process: %w", err)
	}
	return pid, nil
}
