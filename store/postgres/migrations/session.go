package migrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed sql/lock.sql
var lockSQL string

// lockKey is the advisory lock of everything that changes the schema ("outbox" in ASCII).
const lockKey int64 = 0x6f7574626f78

// parse reads a database URL. pgx's own error quotes the URL, and a URL mangled enough not to parse is one whose
// password it cannot find to mask: so nothing of it is passed on.
func parse(databaseURL string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("parse database URL: want the form postgres://user:password@host:5432/database?sslmode=require, special characters percent-encoded")
	}
	return config, nil
}

// connect opens one connection.
func connect(ctx context.Context, databaseURL string) (*pgx.Conn, error) {
	config, err := parse(databaseURL)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}

// locked runs change while holding the schema lock, on the connection that holds it. Waiting for the lock ends
// with ctx, which golang-migrate's own lock does not; and it covers reading the version, repairing a dirty mark
// and migrating as one, which golang-migrate locks one by one.
func locked(ctx context.Context, databaseURL string, change func(*pgx.Conn) error) error {
	conn, err := connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	// The lock goes with the session, also after a panic or a kill. Closing must still work when ctx has ended.
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	if _, err := conn.Exec(ctx, lockSQL, lockKey); err != nil {
		return fmt.Errorf("wait for the migration lock: %w", err)
	}
	return change(conn)
}

// cause strips golang-migrate's wrapping, which quotes the whole SQL file and hides the driver's error, down to
// that error. Other errors are returned as they are.
func cause(err error) error {
	var byValue database.Error
	var byPointer *database.Error
	switch {
	case errors.As(err, &byValue) && byValue.OrigErr != nil:
		return atLine(byValue.OrigErr, byValue.Line)
	case errors.As(err, &byPointer) && byPointer.OrigErr != nil:
		return byPointer.OrigErr
	}
	return err
}

// atLine adds the line of the SQL file to an error of the server.
func atLine(err error, line uint) error {
	var server *pgconn.PgError
	if line == 0 || !errors.As(err, &server) || server.Position == 0 {
		return err
	}
	return fmt.Errorf("line %d: %w", line, err)
}
