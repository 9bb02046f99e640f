package storetest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
)

func workerTests() []test {
	return []test{
		{name: "serves a worker from the first event to the last", run: servesWorker},
		{name: "lets a worker take over from one that died", run: letsWorkerTakeOver},
	}
}

// mortal is a store that a worker uses until it dies, without a word.
type mortal struct {
	crawl.Store
	dead atomic.Bool
}

var errDead = errors.New("the process is dead")

func (m *mortal) alive() error {
	if m.dead.Load() {
		return errDead
	}
	return nil
}

func (m *mortal) GetRun(ctx context.Context, tenant string, id uuid.UUID) (crawl.Run, error) {
	if err := m.alive(); err != nil {
		return crawl.Run{}, err
	}
	return m.Store.GetRun(ctx, tenant, id)
}

func (m *mortal) Change(ctx context.Context, tenant string, run uuid.UUID, c crawl.Change) (crawl.Changed, error) {
	if err := m.alive(); err != nil {
		return crawl.Changed{}, err
	}
	return m.Store.Change(ctx, tenant, run, c)
}

func (m *mortal) ClaimRun(
	ctx context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration, events func(crawl.Run) []crawl.NewEvent,
) (crawl.Claim, error) {
	if err := m.alive(); err != nil {
		return crawl.Claim{}, err
	}
	return m.Store.ClaimRun(ctx, owner, crawlers, ttl, events)
}

func (m *mortal) RenewRun(
	ctx context.Context, run uuid.UUID, hold crawl.Hold, ttl time.Duration,
) (crawl.Status, bool, error) {
	if err := m.alive(); err != nil {
		return "", false, err
	}
	return m.Store.RenewRun(ctx, run, hold, ttl)
}

func (m *mortal) ReleaseRun(ctx context.Context, run uuid.UUID, hold crawl.Hold) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.Store.ReleaseRun(ctx, run, hold)
}

// work runs a worker until the test ends or kill is called, which cuts it off from the store first.
func (r runSuite) work(t *testing.T, cfg crawl.WorkerConfig, crawlers ...crawl.Crawler) (kill func()) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	store := &mortal{Store: r.Runs(t)}
	worker, err := crawl.NewWorker(store, crawlers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return func() { store.dead.Store(true); stop() }
}

// until waits for a run to have a status.
func (r runSuite) until(t *testing.T, run crawl.Run, want crawl.Status) crawl.Run {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(10 * time.Millisecond) {
		got, err := r.GetRun(t.Context(), run.Tenant, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status == want {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("run %s is %s (%s), want %s", run.ID, got.Status, got.Error, want)
		}
	}
}

// sound fails t unless every log is whole, with one terminal event as its last and each node in it
// once, and the outbox has the same.
func (r runSuite) sound(t *testing.T) {
	t.Helper()
	r.inOrder(t)
	const terminal = "('RUN_COMPLETED', 'RUN_FAILED', 'RUN_CANCELLED')"
	r.wants(t, "runs without one terminal event, the last", "0", `SELECT count(*) FROM crawl_runs r
		 WHERE (SELECT count(*) FROM crawl_events e WHERE e.crawl_id = r.id AND e.event_type IN `+terminal+`) <> 1
		    OR (SELECT e.event_type FROM crawl_events e WHERE e.crawl_id = r.id ORDER BY e.seq DESC LIMIT 1) NOT IN `+terminal)
	r.wants(t, "nodes that were finished twice", "0", `SELECT count(*) FROM (
		SELECT crawl_id, payload->>'step' FROM crawl_events WHERE event_type = 'NODE_COMPLETE' GROUP BY crawl_id, payload->>'step' HAVING count(*) > 1) AS t`)
}

func servesWorker(t *testing.T, s *suite) {
	r := s.runs(t)
	scripts, err := crawl.Scripts(100)
	if err != nil {
		t.Fatal(err)
	}
	r.work(t, crawl.WorkerConfig{PollMin: 10 * time.Millisecond, PollMax: 50 * time.Millisecond},
		append(scripts, crawl.Demo(10*time.Millisecond))...)
	demo := r.create(t, demoRun)
	short := r.create(t, func(n *crawl.NewRun) { n.Crawler = "script:short" })
	r.until(t, demo, crawl.Completed)
	if done := r.until(t, short, crawl.Completed); done.StartedAt == nil || done.CompletedAt == nil || done.LastSeq != 36 {
		t.Errorf("the script: %+v", done)
	}
	r.wants(t, "the demonstration's log",
		"RUN_STARTED NODE_START ACTION_EXECUTED NODE_COMPLETE NODE_START PROCESSING NODE_COMPLETE NODE_START "+
			"ACTION_EXECUTED NODE_COMPLETE RUN_COMPLETED",
		"SELECT string_agg(event_type, ' ' ORDER BY seq) FROM crawl_events WHERE crawl_id = ?1", demo.ID)
	r.sound(t)
}

// Two workers compete for 10 runs; one dies in the middle of some, and another one takes its place.
func letsWorkerTakeOver(t *testing.T, s *suite) {
	r := s.runs(t)
	scripts, err := crawl.Scripts(10)
	if err != nil {
		t.Fatal(err)
	}
	var runs []crawl.Run
	for range 10 {
		runs = append(runs, r.create(t, func(n *crawl.NewRun) { n.Crawler = "script:short" }))
	}
	cfg := crawl.WorkerConfig{LeaseTTL: time.Second, PollMax: 100 * time.Millisecond}
	kill := r.work(t, cfg, scripts...)
	for deadline := time.Now().Add(tier.Patience()); r.Value(t,
		"SELECT count(*) FROM crawl_runs WHERE status = 'RUNNING' AND "+
			"steps_done > 2") == "0"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first worker has finished no nodes")
		}
	}
	r.work(t, cfg, scripts...)
	kill()
	r.work(t, cfg, scripts...)
	for _, run := range runs {
		if done := r.until(t, run, crawl.Completed); done.LastSeq != 36 {
			t.Errorf("run %s has %d events, want 36", run.ID, done.LastSeq)
		}
	}
	r.sound(t)
	// More than the dead one had, where a busy machine lets leases lapse.
	if taken := r.Value(t, "SELECT count(*) FROM crawl_runs WHERE lease_epoch > 1"); taken == "0" {
		t.Error("nothing was taken over")
	}
}
