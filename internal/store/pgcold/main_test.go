package pgcold_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres"
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

// browsed returns a pool of ordinary sessions on a migrated database.
func browsed(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.Sessions(t, migratedURL(t))
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
