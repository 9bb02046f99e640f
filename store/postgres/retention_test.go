package postgres_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
)

const week = 168 * time.Hour

// oldTables are the tables that retention knows, each with a statement that inserts $1 rows of
// random state and age, half of them old, and the condition for what must go. Their ids are UUIDv7
// of the time at which they were written; a row is delivered up to three days later. No time is
// within an hour of the end of the week, or a row would become old during the test.
var oldTables = map[string]struct {
	layout       outbox.Layout
	before, fill string
	goes         string
}{
	"outbox_events": {layout: outbox.OutboxEvents(),
		fill: `INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, payload, status, created_at, processed_at, next_retry_at)
			SELECT v7(written), 't', written, 'bc', jsonb_build_object('n', n, 's', E'"\\\u2028 <é>', 'd', 1e-30), s, written, CASE WHEN s = 'SENT' THEN settled END, CASE WHEN s = 'FAILED' THEN now() END
			  FROM mix($1, ARRAY['SENT', 'SENT', 'SENT', 'NEW', 'FAILED', 'DEAD'])`,
		goes: "status = 'SENT' AND processed_at < now() - interval '7 days'"},
	"event_outbox": {layout: outbox.EventOutbox(),
		fill: `INSERT INTO event_outbox (id, app_id, event_id, event_type, payload, status, published_at)
			SELECT v7(written), (SELECT id FROM apps LIMIT 1), v7(written), 't', '{}', s, CASE WHEN s = 'published' THEN settled END FROM mix($1, ARRAY['published', 'published', 'pending', 'failed'])`,
		goes: "status = 'published' AND published_at < now() - interval '7 days'"},
	"crawl_outbox": {layout: outbox.CrawlOutbox(), before: "INSERT INTO crawl_runs (app_package) VALUES ('p')",
		fill: `INSERT INTO crawl_outbox (crawl_id, event_type, payload, created_at, published_at)
			SELECT (SELECT id FROM crawl_runs), 't', '{}', written, CASE WHEN s = 'd' THEN settled END FROM mix($1, ARRAY['d', 'd', 'n']) ORDER BY written`,
		goes: "published_at < now() - interval '7 days'"},
	"job_dlq": {
		fill: `INSERT INTO job_dlq (id, original_job_id, app_id, type, payload, error_reason, attempts, error_history, replayed_at, discarded_at)
			SELECT v7(written), gen_random_uuid(), (SELECT id FROM apps LIMIT 1), 't', '{}', 'Panic', 1, '[]', CASE WHEN s = 'r' THEN settled END, CASE WHEN s = 'd' THEN settled END
			  FROM mix($1, ARRAY['r', 'd', 'p'])`,
		goes: "replayed_at < now() - interval '7 days'"},
	"mapped": {layout: outbox.Layout{Table: "mapped", ID: "event", Position: "seq", Topic: "kind", Payload: "body",
		Attempts: "tries", NextRetryAt: "retry_at",
		Status: "state", Pending: "new", Delivered: "done", Dead: "dead", WrittenAt: "made"},
		before: `CREATE TABLE mapped (event uuid NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY NOT NULL, kind text, body jsonb, tries int, retry_at timestamptz, state text, made timestamptz) PARTITION BY LIST (kind);
			CREATE TABLE mapped_a PARTITION OF mapped FOR VALUES IN ('a'); CREATE TABLE mapped_b PARTITION OF mapped FOR VALUES IN ('b')`,
		fill: `INSERT INTO mapped (event, kind, body, state, made) SELECT gen_random_uuid(), CASE WHEN random() < 0.1 THEN 'b' ELSE 'a' END, '{}', s, written FROM mix($1, ARRAY['done', 'new', 'dead'])`,
		goes: "state = 'done' AND made < now() - interval '7 days'"},
}

// mixSQL makes the functions that fill uses.
const mixSQL = `
CREATE FUNCTION v7(t timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS
	$$ SELECT (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid $$;
CREATE FUNCTION clear(t timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE AS
	$$ SELECT CASE WHEN abs(extract(epoch FROM now() - interval '7 days' - t)) < 3600 THEN t - interval '2 hours'
		ELSE t END $$;
CREATE FUNCTION mix(rows int, states text[]) RETURNS TABLE (n int, s text, written timestamptz, settled timestamptz) LANGUAGE sql VOLATILE AS
	$$ SELECT n, s, clear(w), clear(least(w + random() * interval '3 days', now())) FROM (
		SELECT n, states[1 + floor(random() * cardinality(states))::int], now() - interval '14 days' * random() FROM generate_series(1, rows) n) AS r (n, s, w) $$`

// old is a table with a mix of rows.
type old struct {
	t     testing.TB
	name  string
	url   string
	admin *pgxpool.Pool // as people see the table
}

func newOld(t testing.TB, name string, rows int) *old {
	t.Helper()
	o := &old{t: t, name: name, url: newDatabase(t, "core", "events", "crawl")}
	o.admin = newPool(t, o.url)
	o.exec(mixSQL)
	if before := oldTables[name].before; before != "" {
		o.exec(before)
	}
	o.exec(oldTables[name].fill, rows)
	return o
}

func (o *old) exec(sql string, args ...any) {
	o.t.Helper()
	if _, err := o.admin.Exec(o.t.Context(), sql, args...); err != nil {
		o.t.Fatalf("%v\nin %s", err, sql)
	}
}

// store opens the table with sessions of its own, as another process would.
func (o *old) store() *retention.Table {
	o.t.Helper()
	db, err := postgres.Connect(o.t.Context(), o.url, postgres.Config{Conns: 4})
	ok(o.t, err)
	o.t.Cleanup(db.Close)
	var s *retention.Table
	if o.name == "job_dlq" {
		s, err = db.OpenRetention(o.t.Context(), retention.Letters())
	} else {
		s, err = db.OpenRetention(o.t.Context(), oldTables[o.name].layout)
	}
	ok(o.t, err)
	return s
}

func (o *old) keeper(s retention.Store, cfg retention.Config) *retention.Keeper {
	o.t.Helper()
	cfg.Table, cfg.Logger = o.name, slog.New(slog.DiscardHandler)
	if cfg.OlderThan == 0 {
		cfg.OlderThan = week
	}
	k, err := retention.New(s, cfg)
	ok(o.t, err)
	return k
}

// rows returns the rows that satisfy a condition, each as text.
func (o *old) rows(where string) []string {
	o.t.Helper()
	return one[[]string](o.t, o.admin,
		fmt.Sprintf("SELECT coalesce(array_agg(r::text ORDER BY r::text), '{}') FROM %s r WHERE %s", o.name, where))
}

// restored returns what rows of an archive give back, each once.
func (o *old) restored(objects string, args ...any) []string {
	o.t.Helper()
	return one[[]string](o.t, o.admin,
		fmt.Sprintf("SELECT coalesce(array_agg(DISTINCT r::text ORDER BY r::text), '{}') FROM (%s) AS o (j), "+
			"jsonb_populate_record(NULL::%s, o.j) AS r", objects, o.name), args...)
}

// files reads the whole archive files of a directory.
func files(t testing.TB, dir string) (objects []string, names []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl.gz"))
	ok(t, err)
	for _, name := range names {
		f, err := os.Open(name)
		ok(t, err)
		zip, err := gzip.NewReader(f)
		ok(t, err)
		lines := bufio.NewScanner(zip)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var line retention.Line
			ok(t, json.Unmarshal(lines.Bytes(), &line))
			if line.Table == "" || line.ArchivedAt.IsZero() || !strings.Contains(string(line.Row), line.ID.String()) {
				t.Errorf("incomplete line %s", lines.Bytes())
			}
			objects = append(objects, string(line.Row))
		}
		ok(t, lines.Err())
		ok(t, f.Close())
	}
	return objects, names
}

// Whatever the mix: exactly what is delivered and old goes, and an archive gives exactly that back.
func TestRetentionRemovesWhatIsOldAndNothingElse(t *testing.T) {
	t.Parallel()
	for name := range oldTables {
		for _, where := range []string{"table", "none", "files"} {
			for _, sweep := range []bool{true, false} {
				if name == "mapped" && !sweep {
					continue // no index gives it an order
				}
				t.Run(fmt.Sprintf("%s/%s/sweep=%v", name, where, sweep), func(t *testing.T) {
					if where != "files" || !sweep {
						tier.Full(t)
					}
					t.Parallel()
					o := newOld(t, name, 1000)
					cfg := retention.Config{Batch: 30, FileRows: 40, Every: 10 * time.Millisecond,
						Archive: retention.Archive{None: where == "none"}}
					if where == "files" {
						cfg.Archive.Dir = t.TempDir()
					}
					goes := oldTables[name].goes
					stay, gone := o.rows("("+goes+") IS NOT TRUE"), o.rows(goes)
					if len(stay) < 60 || len(gone) < 60 { // some 110 go
						t.Fatalf("%d rows stay and %d go: the mix proves nothing", len(stay), len(gone))
					}
					k := o.keeper(o.store(), cfg)
					if sweep {
						counted, err := k.Count(t.Context(), nil)
						ok(t, err)
						if counted.Rows != int64(len(gone)) || !counted.DryRun || len(o.rows("true")) != 1000 {
							t.Errorf("a dry run counted %+v, want %d rows, and all still there", counted, len(gone))
						}
						report, err := k.Purge(t.Context(), 0, nil)
						ok(t, err)
						if report.Rows != int64(len(gone)) {
							t.Errorf("reports %d rows, want %d", report.Rows, len(gone))
						}
					} else {
						o.exec("INSERT INTO outbox_maintenance (table_name, swept_at) VALUES ($1, now())", name)
						ctx, cancel := context.WithCancel(t.Context())
						var running sync.WaitGroup
						running.Go(func() { _ = k.Run(ctx) }) // it returns nil
						eventually(t, "the walk finds every old row", func() bool { return len(o.rows(goes)) == 0 })
						cancel()
						running.Wait()
					}
					if got := o.rows("true"); !slices.Equal(got, stay) {
						t.Errorf("%d rows are left, want the %d that stay", len(got), len(stay))
					}
					archived := o.restored("SELECT row FROM outbox_archive WHERE table_name = $1", name)
					if where == "files" {
						if len(archived) > 0 {
							t.Errorf("%d rows in the archive table", len(archived))
						}
						objects, names := files(t, cfg.Archive.Dir)
						if sweep && len(names) < 2 || !slices.IsSorted(names) {
							t.Errorf("files %v, want several", names)
						}
						archived = o.restored("SELECT unnest($1::text[])::jsonb", objects)
					}
					if where == "none" {
						gone = []string{}
					}
					if !slices.Equal(archived, gone) {
						t.Errorf("the archive gives %d rows back, want the %d that went", len(archived), len(gone))
					}
				})
			}
		}
	}
}

// interrupted is a store whose process ends just before it would remove for the nth time.
type interrupted struct {
	retention.Store
	cancel context.CancelFunc
	after  int
}

func (i *interrupted) Remove(ctx context.Context, removal retention.Removal) (retention.Removed, error) {
	if i.after--; i.after < 0 {
		i.cancel()
		return retention.Removed{}, ctx.Err()
	}
	return i.Store.Remove(ctx, removal)
}

func TestRetentionInterruptedBetweenFileAndDelete(t *testing.T) {
	t.Parallel()
	o := newOld(t, "outbox_events", 1000)
	goes := oldTables[o.name].goes
	stay, gone := o.rows("("+goes+") IS NOT TRUE"), o.rows(goes)
	cfg := retention.Config{Batch: 50, FileRows: 200, Archive: retention.Archive{Dir: t.TempDir()}}
	// What a crash left of a file is not mistaken for one.
	ok(t, os.WriteFile(filepath.Join(cfg.Archive.Dir, "outbox_events-20200101T000000.000000Z-0001-00000000.jsonl.gz.tmp"),
		[]byte("half"), 0o600))
	for after := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := o.keeper(&interrupted{Store: o.store(), cancel: cancel, after: after}, cfg).Purge(ctx, 0, nil)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got error %v, want that of the interruption", err)
		}
		objects, _ := files(t, cfg.Archive.Dir)
		if left, kept := o.rows(goes),
			o.restored("SELECT unnest($1::text[])::jsonb", objects); len(kept) == 0 || !slices.Equal(union(left, kept), gone) {
			t.Fatalf("%d in the table and %d in files are not the %d there were", len(left), len(kept), len(gone))
		}
	}
	_, err := o.keeper(o.store(), cfg).Purge(t.Context(), 0, nil)
	ok(t, err)
	objects, _ := files(t, cfg.Archive.Dir)
	if got := o.restored("SELECT unnest($1::text[])::jsonb", objects); !slices.Equal(got, gone) ||
		len(objects) <= len(gone) {
		t.Errorf("files hold %d lines of %d rows, want %d rows, some of them twice", len(objects), len(got), len(gone))
	}
	if got := o.rows("true"); !slices.Equal(got, stay) {
		t.Errorf("%d rows are left, want %d", len(got), len(stay))
	}
	if partial, _ := filepath.Glob(filepath.Join(cfg.Archive.Dir, "*.tmp")); len(partial) != 1 {
		t.Errorf("partial files %v: an interrupted run cleans up after itself, and after nobody else", partial)
	}
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// exclusive counts how many are between a granted lease and its release.
type exclusive struct {
	retention.Store
	inside, most, runs *atomic.Int32
	held               bool
}

func (e *exclusive) Lease(ctx context.Context, request retention.LeaseRequest) (retention.Lease, error) {
	lease, err := e.Store.Lease(ctx, request)
	if err == nil && lease.Held && !e.held {
		e.held = true
		e.runs.Add(1)
		if n := e.inside.Add(1); n > e.most.Load() {
			e.most.Store(n)
		}
	}
	return lease, err
}

func (e *exclusive) Release(ctx context.Context, owner uuid.UUID, done retention.Done) error {
	e.held = false
	e.inside.Add(-1)
	return e.Store.Release(ctx, owner, done)
}

func TestRetentionOneOfSeveralRelaysRunsIt(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	o := newOld(t, "crawl_outbox", 4000)
	goes := oldTables[o.name].goes
	stay, gone := o.rows("("+goes+") IS NOT TRUE"), o.rows(goes)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var inside, most, runs atomic.Int32
	for range 3 {
		k := o.keeper(&exclusive{Store: o.store(), inside: &inside, most: &most, runs: &runs},
			retention.Config{Batch: 20, Every: 20 * time.Millisecond})
		running.Go(func() { _ = k.Run(ctx) })
	}
	eventually(t, "every old row goes", func() bool { return len(o.rows(goes)) == 0 })
	before := runs.Load()
	eventually(t, "runs go on", func() bool { return runs.Load() > before+3 })
	cancel()
	running.Wait()
	if most.Load() != 1 || inside.Load() != 0 {
		t.Errorf("%d at a time, %d have not released, want 1 and 0", most.Load(), inside.Load())
	}
	if got := o.restored("SELECT row FROM outbox_archive"); !slices.Equal(got, gone) ||
		!slices.Equal(o.rows("true"), stay) {
		t.Errorf("%d rows archived, want %d", len(got), len(gone))
	}
	if owner := one[*string](t, o.admin,
		"SELECT owner::text FROM outbox_maintenance WHERE table_name = 'crawl_outbox'"); owner != nil {
		t.Errorf("%s still holds the maintenance", *owner)
	}
}
