package pgstore

import (
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/storetest"
	"github.com/outboxrelay/outbox/server/token"
	"github.com/outboxrelay/outbox/store/postgres"
)

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	migrated := migratedURL(t)
	storetest.StoreSuite(t, func(t *testing.T) storetest.StoreHarness {
		return newHarness(t, testenv.CopyOf(t, migrated))
	})
}

// The store behind a pooler in transaction mode finds tokens, as every request does; the tier "all"
// runs every area of the suite.
func TestStoreSuiteThroughPooler(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	areas := []string{storetest.AreaTokens}
	if tier.AllSelected() {
		areas = nil
	}
	_, through := testenv.Pooled(t, nil)
	migrated := migratedURL(t)
	storetest.StoreSuite(t, func(t *testing.T) storetest.StoreHarness {
		return newHarness(t, through(testenv.CopyOf(t, migrated)))
	}, areas...)
}

// newHarness is the store under test, on a migrated database of its own.
func newHarness(t *testing.T, url string) storetest.StoreHarness {
	t.Helper()
	cfg := need(pgxpool.ParseConfig(url))(t)
	cfg.MaxConns = 8
	postgres.Adapt(cfg)
	pool := need(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(pool.Close)
	relays := need(postgres.Connect(t.Context(), url, postgres.Config{}))(t)
	t.Cleanup(relays.Close)
	return storetest.StoreHarness{
		Runs: func(t *testing.T) crawl.Store {
			t.Helper()
			return need(OpenRuns(t.Context(), pool))(t)
		},
		Tokens: func(t *testing.T) token.Store {
			t.Helper()
			return need(OpenTokens(t.Context(), pool))(t)
		},
		Outbox: func(t *testing.T) outbox.Store {
			t.Helper()
			return need(relays.OpenTable(t.Context(), outbox.CrawlOutbox()))(t)
		},
		Exec: func(t *testing.T, sql string, args ...any) {
			t.Helper()
			exec(t, pool, numbered(sql), args...)
		},
		TryExec: func(t *testing.T, sql string, args ...any) error {
			t.Helper()
			_, err := pool.Exec(t.Context(), numbered(sql), args...)
			return err
		},
		Value: func(t *testing.T, sql string, args ...any) string {
			t.Helper()
			return pgtest.Query[string](t, pool, "SELECT coalesce(("+numbered(sql)+")::text, '')", args...)
		},
	}
}

var parameter = regexp.MustCompile(`\?(\d+)`)

// numbered gives parameters the names that PostgreSQL has for them.
func numbered(sql string) string { return parameter.ReplaceAllString(sql, "$$$1") }
