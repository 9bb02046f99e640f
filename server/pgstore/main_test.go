package pgstore

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var as, exec = pgtest.As, pgtest.Exec

// migratedURL is a new database with all sets.
func migratedURL(t *testing.T) string {
	t.Helper()
	return testenv.Prepared(t, "all",
		func(ctx context.Context, url string) error { return migrations.Up(ctx, url, "core", "events", "crawl") })
}

// migrated returns a pool of ordinary sessions on a migrated database.
func migrated(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.Sessions(t, migratedURL(t))
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
