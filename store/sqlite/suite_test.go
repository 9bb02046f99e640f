package sqlite_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/test/sqlitetest"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/internal/test/tracetest"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/sqlite"
)

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	file := sqlitetest.Files(t)
	outboxtest.StoreSuite(t, outboxtest.StoreFeatures{StoresBytes: true, SurvivesErrors: true},
		func(t *testing.T) outboxtest.StoreHarness {
			if !strings.Contains(t.Name(), "/engine/") && !strings.Contains(t.Name(), "/letters/") {
				tier.Full(t) // other settle modes
			}
			return sqlitetest.Harness(file(t))
		})
}

// What relays do to the database is a run of the protocol's model.
func TestTraces(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	file := sqlitetest.Files(t)
	tracetest.Suite(t, func(t *testing.T) (outboxtest.StoreHarness, inbox.Transactions[*sql.Tx]) {
		db := file(t)
		h := sqlitetest.Harness(db)
		h.Exec(t, "CREATE TABLE effects (n INTEGER)")
		return h, sqlite.Transactions(db)
	})
}

func TestLeasesAreLinearizable(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	file := sqlitetest.Files(t)
	tracetest.Leases(t, func(t *testing.T) outboxtest.StoreHarness { return sqlitetest.Harness(file(t)) })
}
