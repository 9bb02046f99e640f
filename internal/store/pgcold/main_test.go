package pgcold_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// migratedURL is a new database with all sets.
func migratedURL(t *testing.T) string {
	t.Helper()
	return testenv.Prepared(t, "all",
		func(ctx context.Context, url string) error { return migrations.Up(ctx, url, "core", "events", "crawl") })
}

// browsed returns a pool with ordinary sessions, as people use, on a migrated database.
func browsed(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), migratedURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// as returns a pool to the same database whose sessions have one of the roles.
func as(t *testing.T, pool *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	if err := migrations.ApplyRoles(t.Context(), pool.Config().ConnString()); err != nil {
		t.Fatal(err)
	}
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = role
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// table opens a table as a relay does.
func table(t *testing.T, pool *pgxpool.Pool, layout outbox.Layout) outbox.Store {
	t.Helper()
	s, err := postgres.NewDB(pool).OpenTable(t.Context(), layout)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serving returns a table and the lanes that a relay holds.
func serving(t *testing.T, pool *pgxpool.Pool, layout outbox.Layout) (outbox.Store, []outbox.Lane) {
	t.Helper()
	s := table(t, pool, layout)
	leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: uuid.New(), Name: "test", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s, leased.Lanes
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}
