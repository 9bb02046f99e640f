package pgcold_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/test/operatetest"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
)

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	migrated := migratedURL(t)
	operatetest.Suite(t, func(t *testing.T) operatetest.Harness { return newHarness(t, testenv.CopyOf(t, migrated)) })
}

// The same behind a pooler that lends a session for a transaction.
func TestStoreSuiteThroughPooler(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	_, through := testenv.Pooled(t, nil)
	migrated := migratedURL(t)
	operatetest.Suite(t, func(t *testing.T) operatetest.Harness {
		return newHarness(t, through(testenv.CopyOf(t, migrated)))
	})
}

// newHarness is a migrated database of its own.
func newHarness(t *testing.T, url string) operatetest.Harness {
	t.Helper()
	store := pgtest.Harness(t, url)
	return operatetest.Harness{
		StoreHarness: store.StoreHarness,
		Operators:    operate.On(pgcold.DB{Pool: store.Pool}),
		Retention: func(t *testing.T, layout outbox.Layout) retention.Store {
			t.Helper()
			r, err := postgres.NewDB(store.Pool).OpenRetention(t.Context(), layout)
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
		LetterRetention: func(t *testing.T) retention.Store {
			t.Helper()
			r, err := postgres.NewDB(store.Pool).OpenRetention(t.Context(), retention.Letters())
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
	}
}

// An operator skips with the rights of outbox_operator and nothing else.
func TestOperatorRoleSkips(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	own := as(t, pool, "outbox_operator")
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES ('t', now(), 's', '1')`)
	exec(t, pool,
		`INSERT INTO event_outbox (app_id, event_id, event_type, payload) SELECT id, outbox_uuidv7(), 't', '1' FROM apps`)
	exec(t, pool, `INSERT INTO crawl_runs (id, app_package) VALUES ($1, 'shop')`, tabletest.CrawlRun)
	exec(t, pool, `INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 'NODE', '1')`, tabletest.CrawlRun)
	for _, layout := range tabletest.Layouts() {
		n, err := browser(t, own, layout).SkipPage(t.Context(), operate.Selection{All: true},
			operate.Skip{Actor: "me", Reason: "r", Run: uuid.New()}, 10)
		if err != nil || n == 0 {
			t.Errorf("skipped %d of %s, error %v", n, layout.Table, err)
		}
	}
}
