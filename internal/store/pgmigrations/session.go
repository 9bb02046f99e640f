package pgmigrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/internal/store/pooler"
)

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/lock_transaction.sql
	lockTransactionSQL string
	//go:embed sql/lock_holder.sql
	lockHolderSQL string
)

// lockKey is the advisory lock of everything that changes the schema ("outbox" in ASCII).
const lockKey int64 = 0x6f7574626f78

// parse reads a database URL. pgx's own error quotes the URL, and a URL mangled enough not to parse is one whose
// password it cannot find to mask: so nothing of it is passed on.
func parse(databaseURL string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil,
			errors.New("parse database URL: want the form postgres://user:password@host:5432/database?sslmode=require, " +
				"special characters percent-encoded")
	}
	config.RuntimeParams["client_encoding"] = "UTF8"
	config.RuntimeParams["standard_conforming_strings"] = "on"
	delete(config.RuntimeParams, "timezone")                     // PGTZ of who migrates: the database's is asked for
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // no named statements, of which a pooler may know nothing
	return config, nil
}

// connect opens one connection, and tells whether a pooler is in between.
func connect(ctx context.Context, databaseURL string) (conn *pgx.Conn, pooled bool, err error) {
	config, err := parse(databaseURL)
	if err != nil {
		return nil, false, err
	}
	conn, err = pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, false, fmt.Errorf("connect to the database: %w", err)
	}
	if pooled, err = pooler.Between(ctx, conn); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, false, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, pooled, nil
}

// session is a connection to change the schema by, while nobody else does.
type session struct {
	*pgx.Conn
	url    string
	pooled bool // through a pooler: between two transactions it keeps nothing
}

// locked runs change while holding the schema lock. Waiting for the lock ends with ctx, which golang-migrate's own lock
// does not. It covers reading the version, repairing a dirty mark and migrating as one, which golang-migrate locks one
// by one.
//
// Through a pooler the lock is that of a transaction, which is open on a connection of its own for as long.
func locked(ctx context.Context, databaseURL string, change func(session) error) error {
	conn, pooled, err := connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	// The lock goes with the session, also after a panic or a kill. Closing must still work when ctx has ended.
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if !pooled {
		if err := take(ctx, conn, lockSQL); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, strangersSQL); err != nil {
			return err
		}
		return change(session{conn, databaseURL, false})
	}
	holder, _, err := connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = holder.Close(context.WithoutCancel(ctx)) }()
	if _, err := holder.Exec(ctx, "BEGIN"); err != nil {
		return fmt.Errorf("begin the migration lock's transaction: %w", err)
	}
	if err := take(ctx, holder, lockTransactionSQL); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, strangersSQL); err != nil {
		return err
	}
	return change(session{conn, databaseURL, true})
}

// take asks for the schema lock until it gets it, as long as patience: any login may take that lock, and keep it. It
// does not wait in the server. CREATE INDEX CONCURRENTLY waits for
// all statements that began before it, and so for one that waits for the lock of who builds the index. The protocol is
// the simple one, because the other leaves a portal open in the lock's transaction, and with it a snapshot to be waited
// for.
func take(ctx context.Context, conn *pgx.Conn, lock string) error {
	for began := time.Now(); ; {
		var taken bool
		if err := conn.QueryRow(ctx, lock, pgx.QueryExecModeSimpleProtocol, lockKey).Scan(&taken); err != nil || taken {
			if err != nil {
				return fmt.Errorf("wait for the migration lock: %w", err)
			}
			return nil
		}
		if time.Since(began) > patience {
			return fmt.Errorf("wait %s for the migration lock: %s: let it finish, or end it with pg_terminate_backend",
				patience, holder(ctx, conn))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the migration lock: %s: %w", holder(context.WithoutCancel(ctx), conn), ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// holder names who holds the schema lock.
func holder(ctx context.Context, conn *pgx.Conn) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var who string
	if err := conn.QueryRow(ctx, lockHolderSQL, pgx.QueryExecModeSimpleProtocol, lockKey).Scan(&who); err != nil {
		return "nobody holds it any more"
	}
	return who + " holds it"
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
