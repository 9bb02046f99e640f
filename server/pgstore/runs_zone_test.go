package pgstore

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/store/postgres"
)

// The tables of FR-006 and FR-007 have times without a zone, which now() writes in the session's.
// Adopted in a database of another zone than UTC, their times are the instants that they were, and
// pages of runs neither lose nor repeat one.
func TestAdoptedTimesWithoutZone(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"America/New_York", "Asia/Shanghai"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			pool := adopted(t, zone)
			r := need(OpenRuns(t.Context(), pool))(t)
			run := newRun(t, r, func(n *crawl.NewRun) { n.IdempotencyKey = "k" })
			change := crawl.Change{To: crawl.Running, Events: of(crawl.RunStarted)}
			begun := changing(t, r, run.ID, change).Run
			done := changing(t, r, run.ID, crawl.Change{To: crawl.Completed, Events: of(crawl.RunCompleted)}).Run
			got := need(r.GetRun(t.Context(), acme, run.ID))(t)
			again, _, err := r.CreateRun(t.Context(), acme,
				crawl.NewRun{AppPackage: "com.example", MaxSteps: 100, Crawler: crawl.External, IdempotencyKey: "k"}, 0)
			if err != nil {
				t.Fatal(err)
			}
			for name, at := range map[string]*time.Time{
				"created": &run.CreatedAt, "created, of the key": &again.CreatedAt, "created, read": &got.CreatedAt,
				"started": begun.StartedAt, "completed": done.CompletedAt, "completed, read": got.CompletedAt,
			} {
				recent(t, name, at)
			}
			cancelled := changing(t, r, newRun(t, r).ID, crawl.Change{To: crawl.Cancelled, Events: of(crawl.RunCancelled)})
			recent(t, "cancelled", cancelled.Run.CancelledAt)

			for _, tenant := range []string{"default", acme} {
				listsAll(t, r, pool, tenant)
			}
			sameTimes(t, r, pool, run.ID)
		})
	}
}

// adopted is a database in a zone with FR-006's and FR-007's tables and seven runs, adopted.
func adopted(t *testing.T, zone string) *pgxpool.Pool {
	t.Helper()
	url := testenv.Database(t)
	conn := need(pgx.Connect(t.Context(), url))(t)
	ddl := ""
	for _, name := range []string{"fr006", "fr007"} {
		ddl += string(need(os.ReadFile("../../internal/store/pgmigrations/testdata/" + name + ".sql"))(t))
	}
	for _, sql := range []string{
		"DO $do$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''" + zone + "''', current_database()); END $do$",
		"SET timezone = '" + zone + "'", ddl,
		`INSERT INTO crawl_runs (app_package, created_at)
		SELECT 'p', now() - n * interval '1 minute' FROM generate_series(1, 7) n`,
	} {
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pgmigrations.UpIn(t.Context(), url, zone, "core", "crawl"); err != nil {
		t.Fatal(err)
	}
	pool := need(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(pool.Close)
	return pool
}

func recent(t *testing.T, name string, at *time.Time) {
	t.Helper()
	if at == nil || time.Since(*at).Abs() > time.Minute {
		t.Errorf("%s at %v, and it is %v", name, at, time.Now().UTC())
	}
}

// listsAll reads a tenant's runs by twos.
func listsAll(t *testing.T, r *Runs, pool *pgxpool.Pool, tenant string) {
	t.Helper()
	want := pgtest.Query[[]uuid.UUID](t, pool,
		"SELECT array_agg(id ORDER BY created_at DESC, id DESC) FROM crawl_runs WHERE tenant_id = $1", tenant)
	var got []uuid.UUID
	filter := crawl.RunFilter{Limit: 2}
	for more := true; more && len(got) <= len(want); {
		var page []crawl.Run
		var err error
		if page, more, err = r.ListRuns(t.Context(), tenant, filter); err != nil {
			t.Fatal(err)
		}
		for _, run := range page {
			got = append(got, run.ID)
			filter.Before = crawl.Cursor{CreatedAt: run.CreatedAt, ID: run.ID}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages of 2 of tenant %s: %d runs %v, want %d: %v", tenant, len(got), got, len(want), want)
	}
}

// sameTimes checks that the log has the times that a relay publishes.
func sameTimes(t *testing.T, r *Runs, pool *pgxpool.Pool, run uuid.UUID) {
	t.Helper()
	events := need(r.ListEvents(t.Context(), acme, run, 0, 10))(t)
	messages := outboxtest.Relay(t, postgres.NewDB(pool), func(c *relay.Config) {
		c.Tables = []relay.Table{{Layout: outbox.CrawlOutbox()}}
	})
	published := map[uuid.UUID]time.Time{}
	for range 3 { // those of the run, and of the one that was cancelled
		m := messages.Next(t)
		var body struct{ Time time.Time }
		if err := json.Unmarshal(m.Body, &body); err != nil {
			t.Fatalf("%v: %s", err, m.Body)
		}
		published[m.ID] = body.Time
	}
	if len(events) != 2 {
		t.Fatalf("events: %+v", events)
	}
	for i := range events {
		e := &events[i]
		recent(t, e.Type, &e.CreatedAt)
		if at := published[e.ID]; !at.Equal(e.CreatedAt) {
			t.Errorf("%s is of %v in the log, and was published as of %v", e.Type, e.CreatedAt, at)
		}
	}
}
