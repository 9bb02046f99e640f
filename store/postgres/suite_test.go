package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/retention"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
	"github.com/outboxrelay/outbox/tables"
)

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	migrated := newDatabase(t, migrations.Sets...)
	outboxtest.StoreSuite(t, features, func(t *testing.T) outboxtest.StoreHarness {
		return newHarness(t, testenv.CopyOf(t, migrated))
	})
}

var features = outboxtest.StoreFeatures{ConcurrentWriters: true, SeveralHosts: true, RowSecurity: true}

// The same store behind a pooler that lends a session for a transaction: what relays and writers do, which is where a
// session matters. `make race` has all areas.
func TestStoreSuiteThroughPooler(t *testing.T) {
	t.Parallel()
	areas := []string{outboxtest.AreaEngine}
	if os.Getenv("OUTBOX_TEST_POOLED") == "all" {
		areas = nil
	}
	_, through := testenv.Pooled(t, nil)
	migrated := newDatabase(t, migrations.Sets...)
	outboxtest.StoreSuite(t, features, func(t *testing.T) outboxtest.StoreHarness {
		return newHarness(t, through(testenv.CopyOf(t, migrated)))
	}, areas...)
}

// newHarness is the store under test, on a migrated database of its own.
func newHarness(t *testing.T, url string) outboxtest.StoreHarness {
	t.Helper()
	pool := newPool(t, url, func(c *pgxpool.Config) {
		c.MaxConns = 8
		postgres.Adapt(c)
	})
	relays, err := postgres.Connect(t.Context(), url, postgres.Config{Conns: 6})
	ok(t, err)
	t.Cleanup(relays.Close)
	exec := func(t *testing.T, sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), numbered(sql), args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return outboxtest.StoreHarness{
		Table: func(t *testing.T, layout outbox.Layout) outbox.Store {
			t.Helper()
			s, err := relays.OpenTable(t.Context(), layout)
			ok(t, err)
			return s
		},
		Write: func(ctx context.Context, cfg outbox.WriterConfig, commit bool, batches ...[]outbox.Event) error {
			return write(ctx, pool, cfg, commit, batches)
		},
		Hold: func(t *testing.T, cfg outbox.WriterConfig, events ...outbox.Event) func(bool) {
			t.Helper()
			w, err := postgres.NewWriter(cfg)
			ok(t, err)
			tx, err := pool.Begin(t.Context())
			ok(t, err)
			ok(t, w.Write(t.Context(), tx, events...))
			return func(commit bool) {
				t.Helper()
				ok(t, end(t.Context(), tx, commit))
			}
		},
		HoldExec: func(t *testing.T, sql string, args ...any) func(bool) {
			t.Helper()
			tx, err := pool.Begin(t.Context())
			ok(t, err)
			_, err = tx.Exec(t.Context(), numbered(sql), args...)
			ok(t, err)
			return func(commit bool) {
				t.Helper()
				ok(t, end(t.Context(), tx, commit))
			}
		},
		Exec: exec,
		Value: func(t *testing.T, sql string, args ...any) string {
			t.Helper()
			return one[string](t, pool, "SELECT coalesce(("+numbered(sql)+")::text, '')", args...)
		},
		Mapped: func(t *testing.T) outbox.Layout {
			t.Helper()
			exec(t, `CREATE TABLE legacy (n bigserial PRIMARY KEY, uid uuid NOT NULL, kind text, body json, customer text, region text, goes jsonb, version int,
				done_at timestamptz, tries int, due timestamptz, problem text)`)
			return legacy()
		},
		Browser: func(t *testing.T, layout outbox.Layout) tables.Browser {
			t.Helper()
			b, err := postgres.OpenBrowser(t.Context(), pool, layout)
			ok(t, err)
			return b
		},
		Pauses: func(t *testing.T) tables.Pauses {
			t.Helper()
			p, err := postgres.OpenPauses(t.Context(), pool)
			ok(t, err)
			return p
		},
		Letters: func(t *testing.T, layouts ...outbox.Layout) deadletter.Store {
			t.Helper()
			d, err := postgres.OpenDeadLetters(t.Context(), pool, postgres.DeadLettersConfig{Layouts: layouts})
			ok(t, err)
			return d
		},
		Jobs: func(*testing.T) deadletter.Recorder { return postgres.JobLetters{DB: pool} },
		Retention: func(t *testing.T, layout outbox.Layout) retention.Store {
			t.Helper()
			r, err := postgres.NewDB(pool).OpenRetention(t.Context(), layout)
			ok(t, err)
			return r
		},
		LetterRetention: func(t *testing.T) retention.Store {
			t.Helper()
			r, err := postgres.NewDB(pool).OpenLetterRetention(t.Context())
			ok(t, err)
			return r
		},
		Age: func(t *testing.T, layout outbox.Layout, d time.Duration) {
			t.Helper()
			for table, columns := range aging(layout) {
				for _, c := range columns {
					exec(t, fmt.Sprintf("UPDATE %s SET %[2]s = %[2]s - ?1::interval WHERE %[2]s IS NOT NULL", table, c), d)
				}
			}
		},
	}
}

// legacy is the layout of what Mapped makes.
func legacy() outbox.Layout {
	return outbox.Layout{
		Table: "legacy", ID: "uid", Position: "n", Topic: "kind", Payload: "body", Key: "customer",
		KeyScope: []string{"region"}, Tenant: "region",
		Destinations: "goes", SchemaVersion: "version", DeliveredAt: "done_at", Attempts: "tries", NextRetryAt: "due",
		LastError: "problem",
	}
}

// aging names the columns that tell how old something is.
func aging(l outbox.Layout) map[string][]string {
	columns := map[string][]string{
		"job_dlq": {"replayed_at", "discarded_at"}, "outbox_maintenance": {"ran_at", "swept_at", "expires_at"},
	}
	for _, c := range []string{l.DeliveredAt, l.WrittenAt, l.NextRetryAt} {
		if c != "" {
			columns[l.Table] = append(columns[l.Table], c)
		}
	}
	return columns
}

var parameter = regexp.MustCompile(`\?(\d+)`)

// numbered gives parameters the names that PostgreSQL has for them.
func numbered(sql string) string { return parameter.ReplaceAllString(sql, "$$$1") }

func write(
	ctx context.Context, pool *pgxpool.Pool, cfg outbox.WriterConfig, commit bool, batches [][]outbox.Event,
) error {
	w, err := postgres.NewWriter(cfg)
	if err != nil {
		return err
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, events := range batches {
		problems = append(problems, w.Write(ctx, tx, events...))
	}
	return errors.Join(append(problems, end(ctx, tx, commit))...)
}

func end(ctx context.Context, tx pgx.Tx, commit bool) error {
	if commit {
		return tx.Commit(ctx)
	}
	return tx.Rollback(ctx)
}
