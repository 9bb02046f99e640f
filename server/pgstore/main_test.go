package pgstore

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// migratedURL is a new database with all sets.
func migratedURL(t *testing.T) string {
	t.Helper()
	return testenv.Prepared(t, "all",
		func(ctx context.Context, url string) error { return migrations.Up(ctx, url, "core", "events", "crawl") })
}

// migrated returns a pool on a new database that has all migration sets.
func migrated(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := need(pgxpool.New(t.Context(), migratedURL(t)))(t)
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

// need returns v, which the test cannot do without.
func need[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
