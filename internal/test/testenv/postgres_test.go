package testenv_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string) (value T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func startPostgres(t *testing.T, config testenv.PostgresConfig) *testenv.Postgres {
	t.Helper()
	return testenv.PostgresServer(t, config)
}

func TestDatabaseIsNewEmptyAndDropped(t *testing.T) {
	t.Parallel()
	outer := connect(t, testenv.Database(t))
	var inner string
	t.Run("inner", func(innerT *testing.T) {
		conn := connect(t, testenv.Database(innerT)) // closed with the outer test: it is open while the database is dropped
		inner = query[string](innerT, conn, "SELECT current_database()")
		if inner == query[string](innerT, outer, "SELECT current_database()") {
			innerT.Error("two calls gave one database")
		}
		if n := query[int](innerT, conn,
			"SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"); n != 0 {
			innerT.Errorf("%d relations in a new database", n)
		}
		if !query[bool](innerT, conn, "SELECT usesuper FROM pg_user WHERE usename = current_user") {
			innerT.Error("not superuser")
		}
	})
	if query[bool](t, outer, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '"+inner+"')") {
		t.Errorf("%s is still there after its test", inner)
	}
}

func TestPostgresSettings(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := startPostgres(t,
		testenv.PostgresConfig{Settings: map[string]string{"wal_level": "logical", "max_connections": "30"}})
	for _, url := range []string{server.URL("postgres"), server.TCPURL("postgres")} {
		conn := connect(t, url)
		for name, want := range map[string]string{
			"wal_level": "logical", "max_connections": "30", "fsync": "off", "synchronous_commit": "on",
			"server_encoding": "UTF8",
		} {
			if got := query[string](t, conn, "SHOW "+name); got != want {
				t.Errorf("%s = %s, want %s", name, got, want)
			}
		}
	}
}

func TestPostgresFsyncKeepsTheDefaults(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	conn := connect(t, startPostgres(t, testenv.PostgresConfig{Fsync: true}).URL("postgres"))
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if got := query[string](t, conn, "SHOW "+name); got != "on" {
			t.Errorf("%s = %s", name, got)
		}
	}
}

func TestPostgresKeepsCommitsThroughKillAndRestart(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := startPostgres(t, testenv.PostgresConfig{})
	url, pid := server.URL("postgres"), server.PID()
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Fatal("killed, and still takes connections")
	}
	for _, how := range []string{"after Kill", "while running"} {
		if err := server.Restart(); err != nil {
			t.Fatalf("restart %s: %v", how, err)
		}
		if n := query[int](t, connect(t, url), "SELECT n FROM kept"); n != 42 {
			t.Errorf("restart %s: read %d, want 42", how, n)
		}
	}
	if server.PID() == pid {
		t.Error("the process id did not change")
	}
}

// A killed postmaster leaves a System V segment behind, of which a machine allows 4096.
func TestPostgresStopAfterKillFreesSharedMemory(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := startPostgres(t, testenv.PostgresConfig{})
	lock, err := os.ReadFile(filepath.Join(server.Dir(), "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Fields(strings.Split(string(lock), "\n")[6])[1]
	segments := func() string {
		out, err := exec.Command("ipcs", "-m").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(out)), " ") + " "
	}
	if before := segments(); !strings.Contains(before, " "+id+" ") {
		t.Fatalf("segment %s of a running server is not in %s", id, before)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	// It goes with the last process that has it: a backend on a busy machine may still be ending.
	for began := time.Now(); strings.Contains(segments(), " "+id+" "); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > tier.Patience() {
			t.Fatalf("segment %s is still there: %s", id, segments())
		}
	}
}

func TestPostgresStop(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := startPostgres(t, testenv.PostgresConfig{})
	for range 2 {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(server.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory after Stop: %v", err)
	}
	if err := server.Restart(); err == nil {
		t.Error("restarted without a directory")
	}
}

func TestPostgresStartFailureShowsTheLog(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	testenv.Installed(t, "initdb")
	server, err := testenv.StartPostgres(t.Context(),
		testenv.PostgresConfig{Settings: map[string]string{"max_connections": "many"}})
	if err == nil {
		t.Fatal("started with an impossible setting", server.Stop())
	}
	if !strings.Contains(err.Error(), `invalid value for parameter "max_connections"`) {
		t.Errorf("the server's own words are missing: %v", err)
	}
}

func TestPostgresStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testenv.Installed(t, "initdb")
	server, err := testenv.StartPostgres(ctx, testenv.PostgresConfig{})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, %v; want a cancelled start", server, err)
	}
}
