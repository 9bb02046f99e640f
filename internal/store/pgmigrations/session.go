package pgmigrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/version"
)

//go:embed sql/strangers.sql
var strangersSQL string

// lockKey is the advisory lock of everything that changes the schema ("outbox" in ASCII).
const lockKey int64 = 0x6f7574626f78

// parse reads a database URL.
func parse(databaseURL string) (*pgx.ConnConfig, error) {
	parsed, _, err := pooler.ParseURL(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", err)
	}
	config := parsed.ConnConfig
	config.ConnectTimeout = 4 * time.Second // of each attempt: one with TLS, one without
	version.Introduce(config.RuntimeParams, version.Named("outbox migrate"))
	config.RuntimeParams["client_encoding"] = "UTF8"
	config.RuntimeParams["standard_conforming_strings"] = "on"
	delete(config.RuntimeParams, "timezone") // PGTZ of who migrates: the database's is asked for
	// No named statements, of which a pooler may know nothing.
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	return config, nil
}

// connect opens one connection, and tells whether a pooler is in between. Superusers are refused
// where other roles could have their code run.
func connect(ctx context.Context, databaseURL string) (conn *pgx.Conn, pooled bool, err error) {
	config, err := parse(databaseURL)
	if err != nil {
		return nil, false, err
	}
	return open(ctx, config)
}

// connectCatalog is connect for statements that read nothing but PostgreSQL's own catalog, which a
// superuser may use in every database.
func connectCatalog(ctx context.Context, databaseURL string) (conn *pgx.Conn, pooled bool, err error) {
	config, err := parse(databaseURL)
	if err != nil {
		return nil, false, err
	}
	config.AfterConnect = nil
	return open(ctx, config)
}

func open(ctx context.Context, config *pgx.ConnConfig) (conn *pgx.Conn, pooled bool, err error) {
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

// locked runs change while holding the schema lock, on one connection: reading versions, adopting
// and migrating are one. Waiting for the lock ends with ctx.
//
// Through a pooler, which keeps nothing between two transactions, the lock is that of a
// transaction, which is open on a connection of its own for as long.
func locked(ctx context.Context, databaseURL string, change func(*pgx.Conn) error) error {
	return lockedBy(ctx, connect, databaseURL, change)
}

func lockedBy(
	ctx context.Context, connect func(context.Context, string) (*pgx.Conn, bool, error), databaseURL string,
	change func(*pgx.Conn) error,
) error {
	conn, pooled, err := connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	// The lock goes with the session, also after a panic or a kill. Closing must still work when
	// ctx has ended.
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if !pooled {
		err = take(ctx, conn, statement("lock", nil), false)
	} else {
		var holder *pgx.Conn
		if holder, _, err = connect(ctx, databaseURL); err != nil {
			return err
		}
		defer func() { _ = holder.Close(context.WithoutCancel(ctx)) }()
		err = take(ctx, holder, statement("lock_transaction", nil), true)
	}
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, strangersSQL); err != nil {
		return err
	}
	return change(conn)
}

// take asks for the schema lock until it gets it, as long as patience: any login may take that
// lock, and keep it. It does not wait in the server. CREATE INDEX CONCURRENTLY waits for all
// statements that began before it, and so for one that waits for the lock of who builds the index.
// The protocol is the simple one, because the other leaves a portal open in the lock's transaction,
// and with it a snapshot to be waited for. If transaction is set, the lock is a transaction's. Each
// try begins another one, because CREATE INDEX CONCURRENTLY waits for the end of a transaction that
// it has seen with a snapshot, even if the transaction is idle by then.
func take(ctx context.Context, conn *pgx.Conn, lock string, transaction bool) error {
	for began := time.Now(); ; {
		taken, err := try(ctx, conn, lock, transaction)
		if err != nil {
			return fmt.Errorf("wait for the migration lock: %w", err)
		}
		if taken {
			return nil
		}
		if time.Since(began) > patience {
			return fmt.Errorf("wait %s for the migration lock: %s: let it finish, or end it with pg_terminate_backend",
				patience, holder(ctx, conn))
		}
		if !backoff.Wait(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for the migration lock: %s: %w",
				holder(context.WithoutCancel(ctx), conn), ctx.Err())
		}
	}
}

// try asks for the lock once, which takes no time. It is not broken off with ctx: that would cost
// the connection, by which holder is asked.
func try(ctx context.Context, conn *pgx.Conn, lock string, transaction bool) (taken bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if transaction {
		if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
			return false, err
		}
	}
	err = conn.QueryRow(ctx, lock, pgx.QueryExecModeSimpleProtocol, lockKey).Scan(&taken)
	if err == nil && transaction && !taken {
		_, err = conn.Exec(ctx, "ROLLBACK")
	}
	return taken, err
}

// holder names who holds the schema lock.
func holder(ctx context.Context, conn *pgx.Conn) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var who string
	row := conn.QueryRow(ctx, statement("lock_holder", nil), pgx.QueryExecModeSimpleProtocol, lockKey)
	if err := row.Scan(&who); err != nil {
		return "nobody holds it any more"
	}
	return who + " holds it"
}

// briefly begins each transaction that changes something. It bounds a wait for a lock, because who
// comes after it queues behind it: a writer never waits longer for a statement that waits itself.
// And it calls nothing that a role with fewer rights has made.
var briefly = "SET LOCAL lock_timeout = '300ms'; SET LOCAL statement_timeout = 0; " +
	onOneLine(strangersSQL[strings.Index(strangersSQL, "DO $do$"):])

// onOneLine is SQL that stands before a file, so that the lines of errors are the file's. It has no
// comment.
func onOneLine(sql string) string { return strings.Join(strings.Fields(sql), " ") + " " }

const (
	// patience is how long a lock is tried for.
	patience = 2 * time.Minute

	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// patiently tries what needs a lock again until it gets it. Between two tries those who hold it,
// and those who queued behind the last try, go on.
func patiently(ctx context.Context, try func() error) error {
	began := time.Now()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := try()
		if !locksOut(err) {
			return err
		}
		if time.Since(began) > patience {
			return fmt.Errorf("wait %s for a lock (a transaction holds it, see pg_stat_activity; "+
				"end it and run up again): %w", patience, err)
		}
		if !backoff.Wait(ctx, pause/2+rand.N(pause)) {
			return fmt.Errorf("wait for a lock: %w", ctx.Err())
		}
	}
}

func locksOut(err error) bool { return isCode(err, lockNotAvailable, deadlockDetected) }

// isCode tells whether the server has answered with one of these SQLSTATEs.
func isCode(err error, codes ...string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && slices.Contains(codes, server.Code)
}
