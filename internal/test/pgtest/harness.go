package pgtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

// Store is the store under test, and its sessions.
type Store struct {
	outboxtest.StoreHarness
	Pool *pgxpool.Pool
}

// Harness opens the store on a migrated database of its own.
func Harness(t *testing.T, url string) Store {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	ok(t, err)
	cfg.MaxConns = 8
	postgres.Adapt(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	ok(t, err)
	t.Cleanup(pool.Close)
	relays, err := postgres.Connect(t.Context(), url, postgres.Config{Conns: 6})
	ok(t, err)
	t.Cleanup(relays.Close)
	exec := func(t *testing.T, sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), numbered(sql), args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return Store{Pool: pool, StoreHarness: outboxtest.StoreHarness{
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
			var value string
			if err := pool.QueryRow(t.Context(), "SELECT coalesce(("+numbered(sql)+")::text, '')", args...).
				Scan(&value); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			return value
		},
		Mapped: func(t *testing.T) outbox.Layout {
			t.Helper()
			exec(t, `CREATE TABLE legacy (n bigserial PRIMARY KEY, uid uuid NOT NULL, kind text, body json, customer text, region text, goes jsonb, version int,
				done_at timestamptz, tries int, due timestamptz, problem text)`)
			return tabletest.Legacy()
		},
		Letters: func(t *testing.T, layouts ...outbox.Layout) deadletter.Store {
			t.Helper()
			d, err := postgres.OpenDeadLetters(t.Context(), pool, postgres.DeadLettersConfig{Layouts: layouts})
			ok(t, err)
			return d
		},
		Jobs: func(*testing.T) deadletter.Recorder { return postgres.NewJobLetters(pool) },
		Age: func(t *testing.T, layout outbox.Layout, d time.Duration) {
			t.Helper()
			for table, columns := range tabletest.Aging(layout) {
				for _, c := range columns {
					exec(t, fmt.Sprintf("UPDATE %s SET %[2]s = %[2]s - ?1::interval WHERE %[2]s IS NOT NULL", table, c), d)
				}
			}
		},
	}}
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

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
