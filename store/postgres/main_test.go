package postgres_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func TestMain(m *testing.M) {
	testenv.ExamplesNeed("initdb")
	testenv.Main(m)
}

// newDatabase returns the URL of a new database with the sets applied; core if none is named.
func newDatabase(t testing.TB, sets ...string) string {
	t.Helper()
	if len(sets) == 0 {
		sets = []string{"core"}
	}
	return testenv.Prepared(t, strings.Join(sets, "_"), func(ctx context.Context, url string) error {
		return migrations.Up(ctx, url, sets...)
	})
}

// newPool opens a pool that is closed when t ends; change may adjust its configuration.
func newPool(t testing.TB, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 16
	for _, f := range change {
		f(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// one returns the single value of a query.
func one[T any](t testing.TB, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// event returns one with a fresh id and the least that is required.
func event(topic string) outbox.Event {
	return outbox.Event{ID: uuid.New(), Topic: topic, Source: "test", Payload: json.RawMessage(`{"a": 1}`)}
}

// eventually waits until holds is true.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", tier.Patience(), what)
		}
	}
}
