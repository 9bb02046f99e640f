package pgtable

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func TestMain(m *testing.M) {
	testenv.ExamplesNeed("initdb")
	testenv.Main(m)
}

func openURL(t testing.TB, url string, cfg Config) *Sink {
	t.Helper()
	s, err := Open(t.Context(), url, cfg)
	return sinktest.Closing(t, s, err)
}

// open returns a sink on a new database, and a pool for what the sink cannot do.
func open(t testing.TB, cfg Config) (*Sink, *pgxpool.Pool) {
	t.Helper()
	url := testenv.Database(t)
	return openURL(t, url, cfg), connectAdmin(t, url)
}

func connectAdmin(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// makeTables makes tables as their owner would.
func makeTables(t testing.TB, pool *pgxpool.Pool, names ...string) {
	t.Helper()
	for _, name := range names {
		sql, err := CreateTable(name)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, pool, sql)
	}
}

var (
	deliver, wantCopies, eventually = sinktest.Deliver, sinktest.WantCopies, sinktest.Eventually
	wantUnavailable, event, ids     = sinktest.WantUnavailable, sinktest.Event, sinktest.IDs
)

// received returns the ids in a table, in the order of their positions.
func received(t testing.TB, pool *pgxpool.Pool, table string) []string {
	t.Helper()
	name, err := quote(table)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), "SELECT event_id::text FROM "+name+" ORDER BY position")
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}
