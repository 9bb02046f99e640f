package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/crawl"
	"github.com/outboxrelay/outbox/internal/testenv"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
	"github.com/outboxrelay/outbox/tables"
)

const acme = "acme"

// opened returns the runs of a new database.
func opened(t *testing.T) (*Runs, *pgxpool.Pool) {
	t.Helper()
	pool := browsed(t)
	r, err := OpenRuns(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return r, pool
}

// newRun creates a run of tenant acme for an external crawler; change may alter it.
func newRun(t *testing.T, r *Runs, change ...func(*crawl.NewRun)) crawl.Run {
	t.Helper()
	n := crawl.NewRun{AppPackage: "com.example", MaxSteps: 100, Crawler: crawl.External}
	for _, f := range change {
		f(&n)
	}
	run, created, err := r.CreateRun(t.Context(), acme, n)
	if err != nil || !created {
		t.Fatalf("created %t, error %v", created, err)
	}
	return run
}

// started creates a run and starts it.
func started(t *testing.T, r *Runs) crawl.Run {
	t.Helper()
	c := changing(t, r, newRun(t, r).ID, crawl.Change{From: []crawl.Status{crawl.Pending}, To: crawl.Running, Events: of(crawl.RunStarted)})
	return c.Run
}

func changing(t *testing.T, r *Runs, run uuid.UUID, c crawl.Change) crawl.Changed {
	t.Helper()
	changed, err := r.Change(t.Context(), acme, run, c)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// of makes an event of each type.
func of(types ...string) (events []crawl.NewEvent) {
	for _, typ := range types {
		events = append(events, crawl.NewEvent{ID: uuid.Must(uuid.NewV7()), Type: typ, Payload: json.RawMessage(`{"n": 1}`)})
	}
	return events
}

func TestOpenRunsNamesTheMigration(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var schema *tables.SchemaError
	if _, err := OpenRuns(t.Context(), pool); !errors.As(err, &schema) || schema.Table != "crawl_runs" || !strings.Contains(err.Error(), "outbox migrate up --set crawl") {
		t.Errorf("nothing there: got %v", err)
	}
	if err := migrations.Up(t.Context(), url, "core", "crawl"); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Down(t.Context(), url, 1, "crawl"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRuns(t.Context(), pool); !errors.As(err, &schema) || !slices.Contains(schema.Missing, "tenant_id") || !strings.Contains(err.Error(), "outbox migrate up --set crawl") {
		t.Errorf("before 003_run_api: got %v", err)
	}
}

func TestCreateAndGetRun(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := newRun(t, r, func(n *crawl.NewRun) {
		n.DeviceConfig, n.Goal, n.MaxSteps, n.Crawler = json.RawMessage(`{"os": 14}`), "log in", 7, "demo"
	})
	want := crawl.Run{ID: run.ID, Tenant: acme, Status: crawl.Pending, AppPackage: "com.example", DeviceConfig: json.RawMessage(`{"os": 14}`), MaxSteps: 7, Goal: "log in",
		Crawler: "demo", CreatedAt: run.CreatedAt}
	got, err := r.GetRun(t.Context(), acme, run.ID)
	for _, g := range []crawl.Run{run, got} {
		if err != nil || fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", want) {
			t.Errorf("got %+v, error %v, want %+v", g, err, want)
		}
	}
	if time.Since(run.CreatedAt) > time.Hour || run.CreatedAt.Location() != time.UTC {
		t.Errorf("created at %v", run.CreatedAt)
	}
	if n := query[int](t, pool, `SELECT count(*) FROM crawl_outbox`); n != 0 {
		t.Errorf("a run that is only created sent %d events", n)
	}
	for _, refused := range []crawl.NewRun{{AppPackage: "p", DeviceConfig: json.RawMessage(`{"a": "\u0000"}`)}, {AppPackage: strings.Repeat("p", 256)}} {
		if _, _, err := r.CreateRun(t.Context(), acme, refused); !errors.Is(err, crawl.ErrInvalid) {
			t.Errorf("%.30s: got %v, want ErrInvalid", refused.AppPackage, err)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	n := crawl.NewRun{AppPackage: "shop", DeviceConfig: json.RawMessage(`{"a": 1, "b": [2]}`), MaxSteps: 5, Crawler: "demo", IdempotencyKey: "k"}
	var ids [20]uuid.UUID
	var news [20]bool
	var group sync.WaitGroup
	for i := range ids { // all at once
		group.Go(func() {
			run, created, err := r.CreateRun(t.Context(), acme, n)
			if err != nil {
				t.Error(err)
			}
			ids[i], news[i] = run.ID, created
		})
	}
	group.Wait()
	made := 0
	for i := range ids {
		if ids[i] != ids[0] {
			t.Errorf("two runs: %s and %s", ids[i], ids[0])
		}
		if news[i] {
			made++
		}
	}
	if rows := query[int](t, pool, "SELECT count(*) FROM crawl_runs"); made != 1 || rows != 1 {
		t.Errorf("created %d times, %d rows, want once", made, rows)
	}
	n.DeviceConfig = json.RawMessage(`{"b":[2.0],"a":1}`) // the same to jsonb
	if run, created, err := r.CreateRun(t.Context(), acme, n); err != nil || created || run.ID != ids[0] {
		t.Errorf("the same content: got %s, created %t, error %v", run.ID, created, err)
	}
	for name, alter := range map[string]func(*crawl.NewRun){
		"app":     func(n *crawl.NewRun) { n.AppPackage = "other" },
		"config":  func(n *crawl.NewRun) { n.DeviceConfig = nil },
		"steps":   func(n *crawl.NewRun) { n.MaxSteps = 6 },
		"goal":    func(n *crawl.NewRun) { n.Goal = "win" },
		"crawler": func(n *crawl.NewRun) { n.Crawler = crawl.External },
	} {
		other := n
		alter(&other)
		if _, _, err := r.CreateRun(t.Context(), acme, other); !errors.Is(err, crawl.ErrKeyReused) {
			t.Errorf("other %s: got %v, want ErrKeyReused", name, err)
		}
	}
	if _, created, err := r.CreateRun(t.Context(), "umbrella", n); err != nil || !created {
		t.Errorf("another tenant's key: created %t, error %v", created, err)
	}
}

func TestListRunsPages(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	// Several of one moment, so that the id decides.
	exec(t, pool, `INSERT INTO crawl_runs (tenant_id, app_package, status, created_at)
		SELECT CASE WHEN i % 10 = 0 THEN 'umbrella' ELSE 'acme' END, CASE WHEN i % 3 = 0 THEN 'shop' ELSE 'bank' END,
		       (ARRAY['PENDING', 'RUNNING', 'FAILED']::crawl_status[])[1 + i % 3], now() - (i / 7) * interval '1 minute' FROM generate_series(1, 100) i`)
	for _, c := range []struct {
		f    crawl.RunFilter
		want int
	}{{crawl.RunFilter{}, 90}, {crawl.RunFilter{Status: crawl.Failed}, 30}, {crawl.RunFilter{AppPackage: "shop"}, 30}, {crawl.RunFilter{AppPackage: "shop", Status: crawl.Failed}, 0}} {
		c.f.Limit = 8
		var all []crawl.Run
		for {
			page, err := r.ListRuns(t.Context(), acme, c.f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page...)
			if len(page) < c.f.Limit {
				break
			}
			c.f.Before = crawl.Cursor{CreatedAt: page[len(page)-1].CreatedAt, ID: page[len(page)-1].ID}
		}
		sorted := slices.IsSortedFunc(all, func(a, b crawl.Run) int {
			if by := b.CreatedAt.Compare(a.CreatedAt); by != 0 {
				return by
			}
			return strings.Compare(b.ID.String(), a.ID.String())
		})
		if len(all) != c.want || !sorted || slices.ContainsFunc(all, func(r crawl.Run) bool { return r.Tenant != acme }) {
			t.Errorf("%+v: got %d runs, newest first %t, want %d of acme", c.f, len(all), sorted, c.want)
		}
	}
}

func TestListEventsAndLastSeqs(t *testing.T) {
	t.Parallel()
	r, _ := opened(t)
	run, quiet := started(t, r), newRun(t, r)
	for range 4 {
		changing(t, r, run.ID, crawl.Change{Events: of("A", "B", "C")})
	}
	var seqs []int64
	for after := int64(0); ; {
		page, err := r.ListEvents(t.Context(), acme, run.ID, after, 5)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			seqs = append(seqs, e.Seq)
			if e.Run != run.ID || e.Tenant != acme || string(e.Payload) != `{"n": 1}` || e.ID == uuid.Nil || e.CreatedAt.IsZero() || e.Type == "" {
				t.Errorf("got %+v", e)
			}
		}
		after = page[len(page)-1].Seq
	}
	if len(seqs) != 13 || seqs[0] != 1 || seqs[12] != 13 || !slices.IsSorted(seqs) {
		t.Errorf("got %v, want 1 to 13", seqs)
	}
	if events, err := r.ListEvents(t.Context(), acme, quiet.ID, 0, 5); err != nil || len(events) != 0 {
		t.Errorf("of a run without events: %v, error %v", events, err)
	}
	got, err := r.LastSeqs(t.Context(), acme, []uuid.UUID{run.ID, quiet.ID, uuid.New()})
	if err != nil || len(got) != 1 || got[run.ID] != 13 {
		t.Errorf("last numbers: %v, error %v", got, err)
	}
	if got, err := r.GetRun(t.Context(), acme, run.ID); err != nil || got.LastSeq != 13 {
		t.Errorf("run %+v, error %v", got, err)
	}
}

// What belongs to another tenant does not exist.
func TestRunsOfAnotherTenantDoNotExist(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := started(t, r)
	const other = "umbrella"
	if _, err := r.GetRun(t.Context(), other, run.ID); !errors.Is(err, crawl.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if _, err := r.ListEvents(t.Context(), other, run.ID, 0, 10); !errors.Is(err, crawl.ErrNotFound) {
		t.Errorf("events: %v", err)
	}
	if runs, err := r.ListRuns(t.Context(), other, crawl.RunFilter{}); err != nil || len(runs) != 0 {
		t.Errorf("list: %v, error %v", runs, err)
	}
	if seqs, err := r.LastSeqs(t.Context(), other, []uuid.UUID{run.ID}); err != nil || len(seqs) != 0 {
		t.Errorf("last numbers: %v, error %v", seqs, err)
	}
	before := query[string](t, pool, "SELECT concat_ws(' ', status, (SELECT count(*) FROM crawl_events), (SELECT count(*) FROM crawl_outbox)) FROM crawl_runs")
	for _, c := range []crawl.Change{{Events: of("A")}, {To: crawl.Cancelled, Events: of(crawl.RunCancelled)}, {}} {
		if _, err := r.Change(t.Context(), other, run.ID, c); !errors.Is(err, crawl.ErrNotFound) {
			t.Errorf("change %+v: %v", c, err)
		}
	}
	if _, err := r.Change(t.Context(), acme, uuid.New(), crawl.Change{Events: of("A")}); !errors.Is(err, crawl.ErrNotFound) {
		t.Errorf("change of no run: %v", err)
	}
	if after := query[string](t, pool, "SELECT concat_ws(' ', status, (SELECT count(*) FROM crawl_events), (SELECT count(*) FROM crawl_outbox)) FROM crawl_runs"); after != before {
		t.Errorf("got %s, want %s", after, before)
	}
}

// A page of large events is short: each reader of a stream that is behind holds one. Large as text: these are stored in 4 KB, or sent in 25 bytes.
func TestRunEventsPageIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	r, _ := opened(t)
	run := started(t, r)
	for range 10 {
		changing(t, r, run.ID, crawl.Change{Events: []crawl.NewEvent{
			{Type: crawl.Processing, Payload: fmt.Appendf(nil, `{"x":"%s"}`, strings.Repeat("x", 300<<10))},
			{Type: crawl.Processing, Payload: []byte(`[1e131070,1e131070,1e9999]`)},
		}})
	}
	var seqs []int64
	for after, pages := int64(0), 0; ; pages++ {
		page, err := r.ListEvents(t.Context(), acme, run.ID, after, 500)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		size := 0
		for _, e := range page {
			if size += len(e.Payload); size-len(e.Payload) >= pageBytes {
				t.Errorf("a page has %d events, %d bytes before the last", len(page), size-len(e.Payload))
			}
			seqs = append(seqs, e.Seq)
			after = e.Seq
		}
	}
	if len(seqs) != 21 || seqs[20] != 21 {
		t.Errorf("the pages have the events %v", seqs)
	}
	if asked := r.pages.ask(pageBytes); asked > 20 {
		t.Errorf("after events of 300 KB %d are asked for at once", asked)
	}
	small := started(t, r)
	for range 10 {
		changing(t, r, small.ID, crawl.Change{Events: of("A", "B", "C")})
	}
	if page, err := r.ListEvents(t.Context(), acme, small.ID, 0, 30); err != nil || len(page) != 30 {
		t.Errorf("a page of small events after large ones has %d of 30, %v", len(page), err)
	}
}
