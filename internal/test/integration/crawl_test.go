package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// crawlWorld is a database with a service, under the rights of a gateway, and any number of workers
// under theirs.
type crawlWorld struct {
	*world
	*crawl.Service
}

func newCrawlWorld(t *testing.T) *crawlWorld {
	t.Helper()
	w := &crawlWorld{world: &world{url: migrated(t)}}
	if err := migrations.ApplyRoles(t.Context(), w.url); err != nil {
		t.Fatal(err)
	}
	w.pool = w.poolOf(t, "")
	w.Service = crawl.NewService(w.runs(t, w.poolOf(t, "outbox_gateway")),
		crawl.ServiceConfig{Crawlers: []string{"demo", "script:short", "stuck"}})
	return w
}

// poolOf returns a pool whose sessions have a role; "" for the one they log in with.
func (w *crawlWorld) poolOf(t *testing.T, role string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(w.url)
	if err != nil {
		t.Fatal(err)
	}
	if role != "" {
		cfg.ConnConfig.RuntimeParams["role"] = role
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (w *crawlWorld) runs(t *testing.T, pool *pgxpool.Pool) *pgstore.Runs {
	t.Helper()
	runs, err := pgstore.OpenRuns(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// work runs a worker until it is stopped, or killed: then it is cut off from the database first, so
// that it can release nothing.
func (w *crawlWorld) work(t *testing.T, cfg crawl.WorkerConfig, crawlers ...crawl.Crawler) (stop, kill func()) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	pool := w.poolOf(t, "outbox_worker")
	worker, err := crawl.NewWorker(w.runs(t, pool), crawlers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop, func() { pool.Close(); stop() }
}

func (w *crawlWorld) create(t *testing.T, tenant, crawler string) crawl.Run {
	t.Helper()
	r, _, err := w.Create(t.Context(), tenant, crawl.NewRun{AppPackage: "com.example", Crawler: crawler})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// until waits for a run to have a status.
func (w *crawlWorld) until(t *testing.T, r crawl.Run, want crawl.Status) crawl.Run {
	t.Helper()
	deadline := time.Now().Add(tier.Patience())
	for {
		got, err := w.Get(t.Context(), r.Tenant, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status == want {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("run %s is %s (%s) after %s, want %s", r.ID, got.Status, got.Error, tier.Patience(), want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// types is a run's log in one line.
func (w *crawlWorld) types(t *testing.T, r crawl.Run) string {
	t.Helper()
	events, err := w.Events(t.Context(), r.Tenant, r.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Errorf("event %d has the number %d", i+1, e.Seq)
		}
		types = append(types, e.Type)
	}
	return strings.Join(types, " ")
}

// soundLogs is what holds for the log of every run, however many workers died.
const soundLogs = `WITH log AS (
		SELECT crawl_id, count(*) = max(seq) AS whole, bool_or(terminal) AND count(*) FILTER (WHERE terminal) = 1 AND max(seq) FILTER (WHERE terminal) = max(seq) AS ended,
		       count(*) FILTER (WHERE event_type = 'NODE_COMPLETE') = count(DISTINCT payload ->> 'step') FILTER (WHERE event_type = 'NODE_COMPLETE') AS once
		  FROM (SELECT *, event_type IN ('RUN_COMPLETED', 'RUN_FAILED', 'RUN_CANCELLED') AS terminal FROM crawl_events) e GROUP BY crawl_id)
	SELECT (SELECT bool_and(whole AND ended AND once) FROM log)
	   AND (SELECT array_agg((event_id, seq) ORDER BY crawl_id, seq) FROM crawl_events) = (SELECT array_agg((event_id, seq) ORDER BY crawl_id, id) FROM crawl_outbox)`

// The demonstration, from Create to its last event, for two tenants.
func TestCrawlDemonstration(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newCrawlWorld(t)
	w.work(t, crawl.WorkerConfig{}, crawl.Demo(50*time.Millisecond))
	waits, starts := w.create(t, "acme", "demo"), w.create(t, "globex", "demo")
	if r, err := w.Start(t.Context(), "globex", starts.ID); err != nil || r.Status.Ended() {
		t.Fatalf("start: %+v, error %v", r, err)
	}
	const want = "RUN_STARTED NODE_START ACTION_EXECUTED NODE_COMPLETE NODE_START PROCESSING NODE_COMPLETE NODE_START " +
		"ACTION_EXECUTED NODE_COMPLETE RUN_COMPLETED"
	for _, r := range []crawl.Run{waits, starts} {
		done := w.until(t, r, crawl.Completed)
		if got := w.types(t, r); got != want || done.StartedAt == nil || done.CompletedAt == nil || done.LastSeq != 11 {
			t.Errorf("got %s\nof %+v", got, done)
		}
	}
	w.holds(t, "logs are gap-free with one terminal event, and the outbox has the same", soundLogs)
	w.holds(t, "every event belongs to its run's tenant",
		`SELECT bool_and(e.tenant_id = r.tenant_id) FROM crawl_events e JOIN crawl_runs r ON r.id = e.crawl_id`)
}

// Two workers compete for 20 runs; one of them dies in the middle of some, without a word, and
// another one takes its place.
func TestCrawlWorkersCompete(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newCrawlWorld(t)
	crawlers, err := crawl.Scripts(10)
	if err != nil {
		t.Fatal(err)
	}
	// A lease is long enough to be renewed on a busy machine: those of the living are not to be
	// taken over.
	cfg := crawl.WorkerConfig{LeaseTTL: 5 * time.Second, PollMax: 100 * time.Millisecond}
	var runs []crawl.Run
	for range 20 {
		runs = append(runs, w.create(t, crawl.DefaultTenant, "script:short"))
	}
	_, kill := w.work(t, cfg, crawlers...)
	w.work(t, cfg, crawlers...)
	w.eventually(t, "both are at work, one in the middle of something",
		`SELECT count(DISTINCT lease_owner) = 2 AND max(steps_done) > 3 FROM crawl_runs WHERE status = 'RUNNING'`)
	kill()
	w.work(t, cfg, crawlers...)
	for _, r := range runs {
		if done := w.until(t, r, crawl.Completed); done.LastSeq != 36 {
			t.Errorf("run %s has %d events, want 36", r.ID, done.LastSeq)
		}
	}
	w.holds(t, "logs are gap-free with one terminal event, every node is in them once, and the outbox has the same",
		soundLogs)
	w.holds(t, "what the dead one had begun was claimed again",
		`SELECT count(*) FILTER (WHERE lease_epoch > 1) BETWEEN 1 AND 8 FROM crawl_runs`)
}

// stuck visits a node that ends with its context.
func stuck(visits chan<- int) crawl.Crawler {
	return crawl.Crawler{Name: "stuck", First: "Wait", Nodes: map[string]crawl.Node{
		"Wait": crawl.NodeFunc(func(ctx context.Context, _ crawl.Run, _ json.RawMessage) (crawl.Result, error) {
			visits <- 1
			<-ctx.Done()
			return crawl.Result{}, ctx.Err()
		}),
	}}
}

// docs/seeds.md, FR-006: a running worker stops within 5 s of a cancel.
func TestCrawlCancelStopsTheWorker(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newCrawlWorld(t)
	visits, reports := make(chan int, 1), make(reports, 1)
	w.work(t, crawl.WorkerConfig{Observer: reports}, stuck(visits))
	run := w.create(t, "acme", "stuck")
	<-visits
	asked := time.Now()
	for range 2 { // the second finds it cancelled
		if r, err := w.Cancel(t.Context(), "acme", run.ID); err != nil || r.Status != crawl.Cancelled ||
			r.CancelledAt == nil {
			t.Fatalf("cancel: %+v, error %v", r, err)
		}
	}
	var slow testenv.Slow
	eventually(t, "the worker stops", func() bool { slow.Look(); return len(reports) > 0 })
	took := time.Since(asked)
	if got := <-reports; got.Status != crawl.Cancelled || took > slow.Stretch(3*time.Second) {
		t.Errorf("after %s: %+v", took, got)
	}
	if got := w.types(t, run); got != "RUN_STARTED NODE_START RUN_CANCELLED" {
		t.Errorf("the log is %s", got)
	}
}

type reports chan crawl.RunReport

func (r reports) ObserveRun(report crawl.RunReport) { r <- report }

// A worker that stops hands its run over at once and uncounted; one that dies is counted, and the
// run fails when that has happened too often.
func TestCrawlHandsRunsOver(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newCrawlWorld(t)
	visits := make(chan int, 1)
	crawler := stuck(visits)
	cfg := crawl.WorkerConfig{LeaseTTL: time.Hour}
	run := w.create(t, crawl.DefaultTenant, "stuck")
	for range 3 {
		stop, _ := w.work(t, cfg, crawler)
		<-visits
		stop()
	}
	w.holds(t, "it is free and nothing is counted",
		`SELECT status = 'RUNNING' AND lease_owner IS NULL AND lease_epoch = 3 AND node_attempts = 0 FROM crawl_runs`)
	cfg = crawl.WorkerConfig{LeaseTTL: 3 * time.Second, MaxAttempts: 2} // a busy machine renews in time
	for range 2 {
		_, kill := w.work(t, cfg, crawler)
		<-visits
		kill()
	}
	w.work(t, cfg, crawler)
	if r := w.until(t, run,
		crawl.Failed); r.Error != "node Wait (step 1): workers began it 2 times in a row and none finished it" {
		t.Errorf("its error is %s", r.Error)
	}
	if got := w.types(t, run); got != "RUN_STARTED NODE_START ERROR RUN_FAILED" {
		t.Errorf("the log is %s", got)
	}
}

// What a service refuses, a database would refuse; what it lets through, the database takes.
// Concurrent appends of one run are in order.
func TestCrawlOutsideCrawler(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newCrawlWorld(t)
	run := w.create(t, "acme", "")
	odd := crawl.NewEvent{ID: uuid.New(), Type: strings.Repeat("A_9", 16) + "ZZ",
		Payload: json.RawMessage(`{"é": "😀", "n": 1e131071, "m": 0.1e-16000}`)}
	if _, err := w.Append(t.Context(), "acme", run.ID, odd); err == nil ||
		!strings.Contains(err.Error(), "start it first") {
		t.Errorf("append to a PENDING run: %v", err)
	}
	if _, err := w.Start(t.Context(), "acme", run.ID); err != nil {
		t.Fatal(err)
	}
	if c, err := w.Append(t.Context(), "acme", run.ID, odd); err != nil || c.First != 2 || c.Last != 2 {
		t.Fatalf("append: %+v, error %v", c, err)
	}
	var appends sync.WaitGroup
	for i := range 8 {
		appends.Go(func() {
			batch := make([]crawl.NewEvent, 25)
			for n := range batch {
				batch[n] = crawl.NewEvent{Type: crawl.Processing,
					Payload: json.RawMessage(fmt.Sprintf(`{"writer": %d, "n": %d}`, i, n))}
			}
			if c, err := w.Append(t.Context(), "acme", run.ID, batch...); err != nil || c.Last-c.First != 24 {
				t.Errorf("append: %+v, error %v", c, err)
			}
		})
	}
	appends.Wait()
	if r, err := w.Complete(t.Context(), "acme", run.ID); err != nil || r.Status != crawl.Completed || r.LastSeq != 203 {
		t.Fatalf("complete: %+v, error %v", r, err)
	}
	if c, err := w.Append(t.Context(), "acme", run.ID, odd); err != nil || c.Appended != 0 || c.First != 2 {
		t.Errorf("the same event after the end: %+v, error %v", c, err)
	}
	if _, err := w.Append(t.Context(), "acme", run.ID, crawl.NewEvent{Type: crawl.Processing}); err == nil ||
		!strings.Contains(err.Error(), "has ended: it is COMPLETED") {
		t.Errorf("another one: %v", err)
	}
	w.holds(t, "logs are gap-free with one terminal event, and the outbox has the same", soundLogs)
	w.holds(t, "a batch is together and in order", `SELECT bool_and(n = first + (payload ->> 'n')::int) FROM (
		SELECT seq AS n, payload, min(seq) OVER (PARTITION BY payload -> 'writer') AS first FROM crawl_events WHERE event_type = 'PROCESSING') e`)
}
