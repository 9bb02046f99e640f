// Package testenv starts private PostgreSQL, PgBouncer, Redis and RabbitMQ servers, and browsers,
// for tests, benches and demos.
//
// Guaranteed: a server lives in a temporary directory of its own, and listens on a Unix socket (no
// browser does) and on a loopback port nobody else has. It runs as another user when we are root
// (PostgreSQL refuses root). It ends, and its directory goes, when it is stopped and also when the
// process that started it panics, calls os.Exit or is killed with SIGKILL (see watchdog.go). When a
// Start function returns, the server has answered a real request.
//
// Not guaranteed: anything on Windows; access control (PostgreSQL trusts every local connection,
// Redis has no password); that two servers started with the same settings perform alike on a busy
// machine.
//
// The package has no Redis client among its imports. It is reached by the tests beside
// store/postgres, and whatever those tests reach is charged to every user of store/postgres as
// go.sum lines.
package testenv

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// cleanupLimit bounds what is done after a test, whose own context has ended by then. Dropping a
// database waits for a checkpoint, which on a busy machine has taken more than half a minute.
var cleanupLimit = tier.Patience()

// shared is the PostgreSQL server of this test binary. One for all tests, because initdb costs most
// of a second and a database on a running server 20 ms.
var shared struct {
	sync.Mutex
	server    *Postgres
	admin     *pgxpool.Pool // makes and drops databases: a connection costs more than either
	databases atomic.Int64
	prepared  map[string]bool
	strategy  string // of CREATE DATABASE
}

// Main runs the tests of a package and stops the servers that Database and RabbitMQServer share
// between them:
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
// Without it the server is still stopped, by its watchdog, a moment after the test binary ended.
func Main(m *testing.M) {
	m.Run() // its exit code reaches os.Exit through the testing package once TestMain returns
	stopSharedRabbitMQ()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return
	}
	shared.admin.Close()
	if err := shared.server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
	}
	shared.server = nil
}

// AtOnce has n tests of this binary run at once, where fewer would and nobody has said otherwise
// (-parallel). As many as there are processors is too few for tests that wait most of the time. It
// is called by TestMain.
func AtOnce(n int) {
	if !flag.Parsed() { // again, it would undo what TestMain has set
		flag.Parse()
	}
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue &&
		runtime.GOMAXPROCS(0) < n {
		_ = flag.Set(parallel.Name, strconv.Itoa(n)) // a number is what it wants
	}
}

// Database returns the URL of a new empty database, as superuser, on a server that all tests of
// this binary share (started with fsync off by the first call). It is dropped when t ends, whoever
// is still connected.
//
// Roles belong to the whole server, not to a database: a test that creates them in parallel with
// another must name them apart, or start its own server.
func Database(t testing.TB) string {
	t.Helper()
	return Prepared(t, "empty", func(context.Context, string) error { return nil })
}

// Prepared is Database with what prepare made of an empty one. That is done once in this binary for
// each name, and copied: 35 files of migrations cost 300 ms, a copy of what they make 50.
func Prepared(t testing.TB, name string, prepare func(ctx context.Context, databaseURL string) error) string {
	t.Helper()
	server := sharedPostgres(t)
	template := "prepared_" + name
	shared.Lock()
	defer shared.Unlock() // and so no copy is made of half a preparation
	if !shared.prepared[name] {
		if _, err := shared.admin.Exec(t.Context(), "CREATE DATABASE "+template+" TEMPLATE template0"); err != nil {
			t.Fatalf("create database: %v", err)
		}
		// Before PostgreSQL 15 every role may create objects there, which refuses superusers.
		if err := execIn(t.Context(), server.URL(template), "REVOKE CREATE ON SCHEMA public FROM PUBLIC"); err != nil {
			t.Fatalf("prepare database: %v", err)
		}
		if err := prepare(t.Context(), server.URL(template)); err != nil {
			t.Fatalf("prepare database: %v", err)
		}
		// A new session writes the cache file pg_internal.init. Copies of the database have it, and
		// their first sessions start in two thirds of the processor time.
		warm, err := pgx.Connect(t.Context(), server.URL(template))
		if err == nil {
			err = warm.Close(t.Context())
		}
		if err != nil {
			t.Fatalf("prepare database: %v", err)
		}
		shared.prepared[name] = true
	}
	return database(t, server, template)
}

// CopyOf is Database with everything that another one of this binary has. Nobody may be connected
// to that.
func CopyOf(t testing.TB, databaseURL string) string {
	t.Helper()
	return database(t, sharedPostgres(t), nameOf(t, databaseURL))
}

func nameOf(t testing.TB, databaseURL string) string {
	t.Helper()
	parsed, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(parsed.Path, "/")
}

func database(t testing.TB, server *Postgres, template string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", shared.databases.Add(1))
	create := "CREATE DATABASE " + name + " TEMPLATE " + template + shared.strategy
	if _, err := shared.admin.Exec(t.Context(), create); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		if _, err := shared.admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return server.URL(name)
}

// RedisServer starts a Redis server for this test alone and stops it when t ends. It is not shared:
// Pub/Sub channels, the script cache and INFO counters are of the whole server, and one starts in
// 20 ms.
func RedisServer(t testing.TB) *Redis {
	t.Helper()
	return RedisServerWith(t, RedisConfig{})
}

// RedisServerWith is RedisServer with settings.
func RedisServerWith(t testing.TB, config RedisConfig) *Redis {
	t.Helper()
	server, err := StartRedis(t.Context(), config)
	return stopAfter(t, server, err)
}

// PostgresServer starts a PostgreSQL server for this test alone and stops it when t ends. Tests
// that do not configure, stop or kill the server use [Database].
func PostgresServer(t testing.TB, config PostgresConfig) *Postgres {
	t.Helper()
	server, err := StartPostgres(t.Context(), config)
	return stopAfter(t, server, err)
}

// stopAfter returns a server that a Start function returned, and stops it when t ends.
func stopAfter[S interface{ Stop() error }](t testing.TB, server S, err error) S {
	t.Helper()
	if err != nil {
		fatal(t, err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func sharedPostgres(t testing.TB) *Postgres {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		server, err := StartPostgres(t.Context(), PostgresConfig{inMemory: true})
		if err != nil {
			fatal(t, err)
		}
		if shared.strategy, err = server.strategy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if shared.admin, err = pgxpool.New(context.Background(), server.URL("postgres")); err != nil {
			t.Fatal(err)
		}
		shared.server, shared.prepared = server, map[string]bool{}
	}
	return shared.server
}

// strategy returns how CREATE DATABASE copies a template best. By way of the log, PostgreSQL's own
// choice since 15, a copy costs 20 ms of processor time instead of 8 (measured).
func (p *Postgres) strategy(ctx context.Context) (clause string, err error) {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = conn.QueryRow(ctx, "SELECT CASE WHEN current_setting('server_version_num')::int >= 150000 "+
		"THEN ' STRATEGY FILE_COPY' ELSE '' END").Scan(&clause)
	return clause, err
}

// exec runs one statement on the maintenance database over a connection of its own.
func (p *Postgres) exec(ctx context.Context, sql string) error {
	return execIn(ctx, p.URL("postgres"), sql)
}

func execIn(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}
