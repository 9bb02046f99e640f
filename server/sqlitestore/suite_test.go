package sqlitestore

import (
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/storetest"
	"github.com/outboxrelay/outbox/server/token"
)

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	storetest.StoreSuite(t, newHarness)
}

// newHarness is the store under test, on a migrated file of its own.
func newHarness(t *testing.T) storetest.StoreHarness {
	t.Helper()
	db := runsFile(t)
	return storetest.StoreHarness{
		Runs: func(t *testing.T) crawl.Store {
			t.Helper()
			return runsOf(t, db)
		},
		Tokens: func(t *testing.T) token.Store {
			t.Helper()
			s, err := OpenTokens(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Outbox: func(t *testing.T) outbox.Store {
			t.Helper()
			s, err := db.OpenTable(t.Context(), outbox.CrawlOutbox())
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Exec: func(t *testing.T, text string, args ...any) {
			t.Helper()
			exec(t, db, text, stored(args)...)
		},
		TryExec: func(t *testing.T, text string, args ...any) error {
			t.Helper()
			_, err := db.Writes().ExecContext(t.Context(), text, stored(args)...)
			return err
		},
		Value: func(t *testing.T, text string, args ...any) (value string) {
			t.Helper()
			if err := db.Reads().QueryRowContext(t.Context(), "SELECT coalesce(CAST(("+text+") AS TEXT), '')",
				stored(args)...).Scan(&value); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return value
		},
	}
}

// stored gives arguments the form that the tables have.
func stored(args []any) []any {
	all := make([]any, len(args))
	for i, a := range args {
		if at, is := a.(time.Time); is {
			a = sqlitetime.Stamp(at)
		}
		all[i] = a
	}
	return all
}
