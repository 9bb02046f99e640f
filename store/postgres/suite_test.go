package postgres_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/internal/test/tracetest"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	migrated := newDatabase(t, append(pgmigrations.Sets, "log")...)
	outboxtest.StoreSuite(t, features, func(t *testing.T) outboxtest.StoreHarness {
		if !strings.Contains(t.Name(), "/engine/") && !strings.Contains(t.Name(), "/letters/") {
			tier.Full(t) // other settle modes, and the log
		}
		return pgtest.Harness(t, testenv.CopyOf(t, migrated)).StoreHarness
	})
}

var features = outboxtest.StoreFeatures{ConcurrentWriters: true, SeveralHosts: true, RowSecurity: true,
	LogTables: true}

// The store behind a pooler in transaction mode has the behaviours of relays and writers; the tier
// "all" runs every area of the suite.
func TestStoreSuiteThroughPooler(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pooled := features
	pooled.EngineOnly = !tier.AllSelected()
	_, through := testenv.Pooled(t, nil)
	migrated := newDatabase(t, append(pgmigrations.Sets, "log")...)
	outboxtest.StoreSuite(t, pooled, func(t *testing.T) outboxtest.StoreHarness {
		return pgtest.Harness(t, through(testenv.CopyOf(t, migrated))).StoreHarness
	})
}

// What relays do to the database is a run of the protocol's model.
func TestTraces(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	migrated := newDatabase(t)
	tracetest.Suite(t, func(t *testing.T) (outboxtest.StoreHarness, inbox.Transactions[*sql.Tx]) {
		url := testenv.CopyOf(t, migrated)
		db := stdlib.OpenDBFromPool(newPool(t, url))
		t.Cleanup(func() { _ = db.Close() })
		h := pgtest.Harness(t, url).StoreHarness
		h.Exec(t, "CREATE TABLE effects (n INTEGER)")
		return h, postgres.SQLTransactions(db)
	})
}

func TestLeasesAreLinearizable(t *testing.T) {
	t.Parallel()
	tracetest.Leases(t, func(t *testing.T) outboxtest.StoreHarness {
		return pgtest.Harness(t, newDatabase(t)).StoreHarness
	})
}
