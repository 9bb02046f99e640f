package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
)

func leaseTests() []test {
	return []test{
		{name: "claims the oldest run that waits", run: claimsOldestRun},
		{name: "gives a run to one claimer", run: givesRunToOneClaimer},
		{name: "gives a lapsed run to another, and refuses the first", run: refusesStaleWorker},
		{name: "counts the claims of a run", run: countsClaims},
		{name: "renews the lease of a run", run: renewsRun},
		{name: "leaves nothing of a refused claim", run: leavesNothingOfRefusedClaim},
		{name: "passes over runs whose log is over", run: passesOverRunsThatAreOver},
	}
}

func demoRun(n *crawl.NewRun) { n.Crawler = "demo" }

func (r runSuite) claim(t *testing.T, ttl time.Duration) crawl.Claim {
	t.Helper()
	c, err := r.ClaimRun(t.Context(), uuid.New(), []string{"demo", "script:x"}, ttl,
		func(crawl.Run) []crawl.NewEvent { return runEvents(crawl.RunStarted) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r runSuite) noneToClaim(t *testing.T, crawlers ...string) {
	t.Helper()
	if c, err := r.ClaimRun(t.Context(), uuid.New(), crawlers, time.Minute, nil); !errors.Is(err, crawl.ErrNoRun) {
		t.Errorf("claimed %+v, error %v, want ErrNoRun", c, err)
	}
}

func claimsOldestRun(t *testing.T, s *suite) {
	r := s.runs(t)
	r.create(t) // external: nobody's
	r.noneToClaim(t, "demo", crawl.External)
	older, newer := r.create(t, demoRun), r.create(t, demoRun)
	r.noneToClaim(t, "script:x")
	r.noneToClaim(t)

	c := r.claim(t, time.Minute)
	if c.Run.ID != older.ID || c.Run.Status != crawl.Running || c.Run.StartedAt == nil || c.Run.LastSeq != 1 ||
		c.Run.Tenant != acme || c.Resumed ||
		c.Hold.Epoch != 1 || c.Progress.Attempts != 1 || c.Progress.Node != "" || c.Progress.State != nil ||
		c.Progress.Steps != 0 {
		t.Errorf("the oldest: %+v", c)
	}
	r.wants(t, "the events", "RUN_STARTED 1 1",
		"SELECT concat_ws(' ', event_type, seq, (SELECT seq FROM crawl_outbox)) FROM crawl_events")
	if c := r.claim(t, time.Minute); c.Run.ID != newer.ID {
		t.Errorf("the next: %+v", c)
	}
	r.noneToClaim(t, "demo")

	// One that was started over the API has no lease and its RUN_STARTED.
	byHand := r.create(t, demoRun)
	r.change(t, byHand.ID, crawl.Change{From: []crawl.Status{crawl.Pending}, To: crawl.Running,
		Events: runEvents(crawl.RunStarted)})
	if c := r.claim(t, time.Minute); c.Run.ID != byHand.ID || c.Run.LastSeq != 1 || c.Resumed {
		t.Errorf("started by hand: %+v", c)
	}
}

func givesRunToOneClaimer(t *testing.T, s *suite) {
	r := s.runs(t)
	for range 20 {
		r.create(t, demoRun)
	}
	var mu sync.Mutex
	claimed := map[uuid.UUID]int{}
	together(8, func(int) {
		for {
			c, err := r.ClaimRun(t.Context(), uuid.New(), []string{"demo"}, time.Minute,
				func(crawl.Run) []crawl.NewEvent { return runEvents(crawl.RunStarted) })
			if errors.Is(err, crawl.ErrNoRun) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			claimed[c.Run.ID]++
			mu.Unlock()
		}
	})
	for id, n := range claimed {
		if n != 1 {
			t.Errorf("run %s was claimed %d times", id, n)
		}
	}
	if len(claimed) != 20 {
		t.Errorf("%d runs were claimed, want 20", len(claimed))
	}
	r.wants(t, "runs that are not as they should be", "0",
		"SELECT count(*) FROM crawl_runs WHERE status = 'PENDING' OR lease_epoch <> 1 OR (SELECT count(*) FROM "+
			"crawl_events e WHERE e.crawl_id = crawl_runs.id) <> 1")
	r.inOrder(t)
}

// The second worker goes on where the first one stood, and the first one, which comes back, can do
// nothing.
func refusesStaleWorker(t *testing.T, s *suite) {
	r := s.runs(t)
	r.create(t, demoRun)
	first := r.claim(t, 2*time.Second)
	id := first.Run.ID
	step := crawl.Change{From: runningOnly, Events: runEvents(crawl.NodeComplete, crawl.NodeStart), Hold: &first.Hold,
		Progress: crawl.Progress{Node: "process", State: json.RawMessage(`{"at": 7}`), Steps: 1}}
	if c := r.change(t, id, step); c.Appended != 2 || c.Run.Status != crawl.Running {
		t.Errorf("a step: %+v", c)
	}
	r.noneToClaim(t, "demo")
	var second crawl.Claim
	deadline := time.Now().Add(tier.Patience())
	for second.Run.ID == uuid.Nil && time.Now().Before(deadline) {
		var err error
		// Even the same process.
		second, err = r.ClaimRun(t.Context(), first.Hold.Owner, []string{"demo"}, time.Minute,
			func(crawl.Run) []crawl.NewEvent { return runEvents(crawl.RunStarted) })
		if err != nil && !errors.Is(err, crawl.ErrNoRun) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if p := second.Progress; second.Run.ID != id || !second.Resumed || second.Hold.Epoch != 2 || second.Run.LastSeq != 3 ||
		p.Node != "process" || string(p.State) != `{"at": 7}` || p.Steps != 1 || p.Attempts != 1 {
		t.Fatalf("taken over: %+v", second)
	}
	before := r.Value(t, runState)
	for _, c := range []crawl.Change{
		step, // all of its events are there already
		{From: runningOnly, Events: runEvents("A"), Hold: &first.Hold},
		{From: runningOnly, To: crawl.Completed, Events: runEvents(crawl.RunCompleted), Hold: &first.Hold},
	} {
		if _, err := r.Change(t.Context(), acme, id, c); !errors.Is(err, crawl.ErrLeaseLost) {
			t.Errorf("the stale worker's %+v: got %v, want ErrLeaseLost", c, err)
		}
	}
	if status, held, err := r.RenewRun(t.Context(), id, first.Hold, time.Minute); err != nil || held ||
		status != crawl.Running {
		t.Errorf("the stale worker renews: %s, held %t, error %v", status, held, err)
	}
	if err := r.ReleaseRun(t.Context(), id, first.Hold); err != nil {
		t.Error(err)
	}
	r.noneToClaim(t, "demo") // it gave nothing up
	r.wants(t, "the run afterwards", before, runState)
}

// A graceful stop, and one node that kills its workers again and again: each claim is counted,
// until a node is finished.
func countsClaims(t *testing.T, s *suite) {
	r := s.runs(t)
	id := r.create(t, demoRun).ID
	c := r.claim(t, time.Minute)
	for i := range 3 {
		if err := r.ReleaseRun(t.Context(), id, c.Hold); err != nil {
			t.Fatal(err)
		}
		if c = r.claim(t, time.Minute); c.Run.ID != id || !c.Resumed || c.Progress.Attempts != i+2 ||
			c.Hold.Epoch != int64(i+2) {
			t.Fatalf("claimed again: %+v", c)
		}
	}
	const progress = "SELECT concat_ws(' ', next_node, coalesce(CAST(node_state AS text), '-'), steps_done, " +
		"node_attempts) FROM crawl_runs"
	r.change(t, id, crawl.Change{From: runningOnly, Hold: &c.Hold,
		Progress: crawl.Progress{Node: "process", State: json.RawMessage(`[7]`), Steps: 1}})
	r.wants(t, "progress", "process [7] 1 0", progress)
	r.change(t, id, crawl.Change{From: runningOnly, Hold: &c.Hold, Progress: crawl.Progress{Node: "finish", Steps: 2}})
	r.wants(t, "progress", "finish - 2 0", progress)
	done := r.change(t, id, crawl.Change{From: runningOnly, To: crawl.Completed, Events: runEvents(crawl.RunCompleted),
		Hold: &c.Hold, Progress: crawl.Progress{Steps: 3}})
	if done.Run.Status != crawl.Completed || done.Run.CompletedAt == nil {
		t.Errorf("the end: %+v", done)
	}
	r.wants(t, "what is left of the lease", "0",
		"SELECT count(lease_owner) + count(lease_expires_at) + count(next_node) FROM crawl_runs")
}

func renewsRun(t *testing.T, s *suite) {
	r := s.runs(t)
	r.create(t, demoRun)
	c := r.claim(t, 50*time.Millisecond)
	time.Sleep(60 * time.Millisecond) // lapsed, and nobody's else
	status, held, err := r.RenewRun(t.Context(), c.Run.ID, c.Hold, time.Hour)
	if err != nil || !held || status != crawl.Running {
		t.Fatalf("got %s, held %t, error %v", status, held, err)
	}
	now := time.Now()
	r.wants(t, "leases that end in an hour", "1",
		"SELECT count(*) FROM crawl_runs WHERE lease_expires_at BETWEEN ?1 AND ?2", now.Add(58*time.Minute),
		now.Add(61*time.Minute))
	r.change(t, c.Run.ID, crawl.Change{From: []crawl.Status{crawl.Pending, crawl.Running}, To: crawl.Cancelled,
		Events: runEvents(crawl.RunCancelled)})
	if status, held, err := r.RenewRun(t.Context(), c.Run.ID, c.Hold, time.Hour); err != nil || held ||
		status != crawl.Cancelled {
		t.Errorf("cancelled: got %s, held %t, error %v", status, held, err)
	}
	var state *crawl.StateError
	if _, err := r.Change(t.Context(), acme, c.Run.ID,
		crawl.Change{From: runningOnly, Events: runEvents("A"), Hold: &c.Hold}); !errors.As(err, &state) ||
		state.Status != crawl.Cancelled {
		t.Errorf("the worker of a cancelled run goes on: %v, want a *StateError", err)
	}
	r.noneToClaim(t, "demo")
	if _, _, err := r.RenewRun(t.Context(), uuid.New(), c.Hold, time.Hour); !errors.Is(err, crawl.ErrNotFound) {
		t.Errorf("no run: got %v", err)
	}
}

// A claim whose first events are refused claims nothing.
func leavesNothingOfRefusedClaim(t *testing.T, s *suite) {
	r := s.runs(t)
	r.create(t, demoRun)
	bad := func(crawl.Run) []crawl.NewEvent {
		return []crawl.NewEvent{{Type: "A", Payload: json.RawMessage(`"\u0000"`)}}
	}
	if _, err := r.ClaimRun(t.Context(), uuid.New(), []string{"demo"}, time.Minute, bad); !errors.Is(err,
		crawl.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	r.wants(t, "the run afterwards", "PENDING 0 0 0 0 0", runState)
	if c := r.claim(t, time.Minute); c.Hold.Epoch != 1 || c.Progress.Attempts != 1 {
		t.Errorf("then: %+v", c)
	}
}

// A run whose log was ended by plain SQL is given that end, and keeps no worker from the runs after
// it.
func passesOverRunsThatAreOver(t *testing.T, s *suite) {
	r := s.runs(t)
	pending, running := r.create(t, demoRun), r.create(t, demoRun)
	r.change(t, running.ID, crawl.Change{To: crawl.Running, Events: runEvents(crawl.RunStarted)})
	const end = "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES (?1, ?2, '{}')"
	r.Exec(t, end, pending.ID, crawl.RunCancelled)
	r.Exec(t, end, running.ID, crawl.RunFailed)
	fine := r.create(t, demoRun)
	if c := r.claim(t, time.Minute); c.Run.ID != fine.ID {
		t.Errorf("claimed %+v, want the run that is not over", c)
	}
	r.noneToClaim(t, "demo")
	for run, want := range map[uuid.UUID]string{pending.ID: "CANCELLED false true 1", running.ID: "FAILED true false 2"} {
		got, err := r.GetRun(t.Context(), acme, run)
		if is := fmt.Sprint(got.Status, " ", got.StartedAt != nil, " ", got.CancelledAt != nil, " ",
			got.LastSeq); err != nil || is != want {
			t.Errorf("got %s, error %v, want %s", is, err, want)
		}
		r.wants(t, "its leases", "0",
			"SELECT lease_epoch + count(lease_owner) + count(lease_expires_at) FROM crawl_runs WHERE id = ?1 GROUP BY "+
				"lease_epoch", run)
	}
}
