package pgmigrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// childMode makes this test binary a process that migrates and nothing else, so that tests can have
// several and kill them.
const childMode, childURL = "MIGRATIONS_TEST_CHILD", "MIGRATIONS_TEST_URL"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		if err := child(mode, os.Getenv(childURL)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.AtOnce(4)
	testenv.Main(m)
}

func child(mode, url string) error {
	ctx := context.Background()
	switch mode {
	case "up":
		return pgmigrations.Up(ctx, url, pgmigrations.Sets...)
	}
	return fmt.Errorf("unknown mode %s", mode)
}

// childCommand is this test binary in a mode.
func childCommand(t *testing.T, mode, url string) *exec.Cmd {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), executable)
	command.Env = append(os.Environ(), childMode+"="+mode, childURL+"="+url)
	return command
}

// database is a new database with all sets applied, and a connection to it as superuser.
func database(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	url := testenv.Prepared(t, "all",
		func(ctx context.Context, url string) error { return pgmigrations.Up(ctx, url, pgmigrations.Sets...) })
	return url, connect(t, url)
}

func up(t *testing.T, url string, sets ...string) {
	t.Helper()
	if len(sets) == 0 {
		sets = pgmigrations.Sets
	}
	if err := pgmigrations.Up(t.Context(), url, sets...); err != nil {
		t.Fatal(err)
	}
}

// waiting counts the statements that wait for a lock.
const waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

// waitingUp returns when a statement of Up waits for a lock. cancel ends Up's context, and result
// is what Up returns.
func waitingUp(t *testing.T, url string) (cancel context.CancelFunc, result <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pgmigrations.Up(ctx, url, pgmigrations.Sets...) }()
	for other := connect(t, url); one[int](t, other, waiting) == 0; {
		select {
		case err := <-ended:
			t.Fatalf("Up did not wait for a lock: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	return cancel, ended
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// querier is a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ownerOf returns the URL of a login that owns the schema public and what outbox_owner owns.
func ownerOf(t *testing.T, conn *pgx.Conn, url string) string {
	t.Helper()
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	run(t, conn, `DO $$ BEGIN CREATE ROLE owner_login LOGIN IN ROLE outbox_owner;
		EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	return strings.Replace(url, "postgres@", "owner_login@", 1)
}

// takeBack gives to the superuser what ApplyRoles gave to outbox_owner, so that he may migrate again.
func takeBack(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	run(t, conn, "REASSIGN OWNED BY outbox_owner TO postgres")
	run(t, conn, "REVOKE CREATE ON SCHEMA public FROM outbox_owner")
}

func run(t *testing.T, db querier, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%v\nin %s", err, sql)
	}
}

// query returns the first column of all rows.
func query[T any](t *testing.T, db querier, sql string, args ...any) []T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%v\nin %s", err, sql)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%v\nin %s", err, sql)
	}
	return values
}

// one is query of exactly one row.
func one[T any](t *testing.T, db querier, sql string, args ...any) T {
	t.Helper()
	values := query[T](t, db, sql, args...)
	if len(values) != 1 {
		t.Fatalf("got %d rows, want 1, from %s", len(values), sql)
	}
	return values[0]
}

// beginner is a connection or a transaction.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// refused checks that PostgreSQL refuses the statement with this SQLSTATE.
func refused(t *testing.T, db beginner, code, sql string, args ...any) {
	t.Helper()
	_ = refusal(t, db, code, sql, args...) // it has checked the code
}

// refusal is refused and returns the error. The statement runs in a transaction of its own, or
// below a savepoint, so that the caller's can go on.
func refusal(t *testing.T, db beginner, code, sql string, args ...any) *pgconn.PgError {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), sql, args...)
	if rollback := tx.Rollback(t.Context()); rollback != nil {
		t.Fatal(rollback)
	}
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != code {
		t.Fatalf("got error %v, want SQLSTATE %s, from %s", err, code, sql)
	}
	return refused
}
