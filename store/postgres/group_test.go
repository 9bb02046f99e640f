package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/grouptest"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
)

func TestGroupSuite(t *testing.T) {
	t.Parallel()
	migrated := newDatabase(t, append(pgmigrations.Sets, "log")...)
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.OutboxLog()} {
		t.Run(layout.Table, func(t *testing.T) {
			if !layout.KeepsState() {
				tier.Full(t)
			}
			t.Parallel()
			grouptest.Suite(t, func(t *testing.T) grouptest.Harness { return grouped(t, migrated, layout) })
		})
	}
}

// Each group of a log gets all of it, from where it begins.
func TestGroupsOfALog(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	grouptest.Log(t, grouped(t, newDatabase(t, append(pgmigrations.Sets, "log")...), outbox.OutboxLog()))
}

func grouped(t *testing.T, migrated string, layout outbox.Layout) grouptest.Harness {
	t.Helper()
	url := testenv.CopyOf(t, migrated)
	h := pgtest.Harness(t, url)
	h.Exec(t, "CREATE TABLE effects (key TEXT, n INTEGER)")
	db, err := postgres.Connect(t.Context(), url, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	handle := stdlib.OpenDBFromPool(h.Pool)
	t.Cleanup(func() { _ = handle.Close() })
	return grouptest.Harness{StoreHarness: h.StoreHarness, DB: db, Tx: postgres.SQLTransactions(handle), Layout: layout}
}

var _ group.Begun = (*postgres.DB)(nil)
