package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/crawl"
)

func demo(n *crawl.NewRun) { n.Crawler = "demo" }

func claim(t *testing.T, r *Runs, ttl time.Duration) crawl.Claim {
	t.Helper()
	c, err := r.ClaimRun(t.Context(), uuid.New(), []string{"demo", "script:x"}, ttl, func(crawl.Run) []crawl.NewEvent { return of(crawl.RunStarted) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func noRun(t *testing.T, r *Runs, crawlers ...string) {
	t.Helper()
	if c, err := r.ClaimRun(t.Context(), uuid.New(), crawlers, time.Minute, nil); !errors.Is(err, crawl.ErrNoRun) {
		t.Errorf("claimed %+v, error %v, want ErrNoRun", c, err)
	}
}

func TestClaimRun(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	newRun(t, r) // external: nobody's
	noRun(t, r, "demo", crawl.External)
	older, newer := newRun(t, r, demo), newRun(t, r, demo)
	noRun(t, r, "script:x")
	noRun(t, r)

	c := claim(t, r, time.Minute)
	if c.Run.ID != older.ID || c.Run.Status != crawl.Running || c.Run.StartedAt == nil || c.Run.LastSeq != 1 || c.Run.Tenant != acme || c.Resumed ||
		c.Hold.Epoch != 1 || c.Progress.Attempts != 1 || c.Progress.Node != "" || c.Progress.State != nil || c.Progress.Steps != 0 {
		t.Errorf("the oldest: %+v", c)
	}
	if got := query[string](t, pool, "SELECT concat_ws(' ', event_type, seq, (SELECT seq FROM crawl_outbox)) FROM crawl_events"); got != "RUN_STARTED 1 1" {
		t.Errorf("the events are %s", got)
	}
	if c := claim(t, r, time.Minute); c.Run.ID != newer.ID {
		t.Errorf("the next: %+v", c)
	}
	noRun(t, r, "demo")

	// One that was started over the API has no lease and its RUN_STARTED.
	byHand := newRun(t, r, demo)
	changing(t, r, byHand.ID, crawl.Change{From: []crawl.Status{crawl.Pending}, To: crawl.Running, Events: of(crawl.RunStarted)})
	if c := claim(t, r, time.Minute); c.Run.ID != byHand.ID || c.Run.LastSeq != 1 || c.Resumed {
		t.Errorf("started by hand: %+v", c)
	}
}

// A run that somebody changes at this moment is passed over, not waited for; and of many workers each gets one of its own.
func TestClaimRunDoesNotWait(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	locked := newRun(t, r, demo)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM crawl_runs WHERE id = $1 FOR NO KEY UPDATE", locked.ID); err != nil {
		t.Fatal(err)
	}
	noRun(t, r, "demo")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 19 {
		newRun(t, r, demo)
	}
	var mu sync.Mutex
	claimed := map[uuid.UUID]int{}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				c, err := r.ClaimRun(t.Context(), uuid.New(), []string{"demo"}, time.Minute, func(crawl.Run) []crawl.NewEvent { return of(crawl.RunStarted) })
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
	}
	group.Wait()
	for id, n := range claimed {
		if n != 1 {
			t.Errorf("run %s was claimed %d times", id, n)
		}
	}
	if left := query[int](t, pool, "SELECT count(*) FROM crawl_runs WHERE status = 'PENDING' OR (SELECT count(*) FROM crawl_events e WHERE e.crawl_id = crawl_runs.id) <> 1"); len(claimed) != 20 || left != 0 {
		t.Errorf("%d runs were claimed, %d are not as they should be", len(claimed), left)
	}
}

// The second worker goes on where the first one stood, and the first one, which comes back, can do nothing.
func TestLeaseLapsesAndStaleWorkerIsRefused(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	newRun(t, r, demo)
	first := claim(t, r, 300*time.Millisecond)
	id, running := first.Run.ID, []crawl.Status{crawl.Running}
	step := crawl.Change{From: running, Events: of(crawl.NodeComplete, crawl.NodeStart), Hold: &first.Hold,
		Progress: crawl.Progress{Node: "process", State: json.RawMessage(`{"at": 7}`), Steps: 1}}
	if c := changing(t, r, id, step); c.Appended != 2 || c.Run.Status != crawl.Running {
		t.Errorf("a step: %+v", c)
	}
	noRun(t, r, "demo")
	var second crawl.Claim
	deadline := time.Now().Add(10 * time.Second)
	for second.Run.ID == uuid.Nil && time.Now().Before(deadline) {
		var err error
		second, err = r.ClaimRun(t.Context(), first.Hold.Owner, []string{"demo"}, time.Minute, func(crawl.Run) []crawl.NewEvent { return of(crawl.RunStarted) }) // even the same process
		if err != nil && !errors.Is(err, crawl.ErrNoRun) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if p := second.Progress; second.Run.ID != id || !second.Resumed || second.Hold.Epoch != 2 || second.Run.LastSeq != 3 ||
		p.Node != "process" || string(p.State) != `{"at": 7}` || p.Steps != 1 || p.Attempts != 1 {
		t.Fatalf("taken over: %+v", second)
	}
	stale := func(c crawl.Change) {
		t.Helper()
		if _, err := r.Change(t.Context(), acme, id, c); !errors.Is(err, crawl.ErrLeaseLost) {
			t.Errorf("the stale worker's %+v: got %v, want ErrLeaseLost", c, err)
		}
	}
	stale(step) // all of its events are there already
	stale(crawl.Change{From: running, Events: of("A"), Hold: &first.Hold})
	stale(crawl.Change{From: running, To: crawl.Completed, Events: of(crawl.RunCompleted), Hold: &first.Hold})
	if status, held, err := r.RenewRun(t.Context(), id, first.Hold, time.Minute); err != nil || held || status != crawl.Running {
		t.Errorf("the stale worker renews: %s, held %t, error %v", status, held, err)
	}
	if err := r.ReleaseRun(t.Context(), id, first.Hold); err != nil {
		t.Error(err)
	}
	noRun(t, r, "demo") // it gave nothing up

	// A graceful stop, and one node that kills its workers again and again: each claim is counted.
	for i := range 3 {
		if err := r.ReleaseRun(t.Context(), id, second.Hold); err != nil {
			t.Fatal(err)
		}
		if second = claim(t, r, time.Minute); second.Run.ID != id || second.Progress.Attempts != i+2 || second.Hold.Epoch != int64(i+3) {
			t.Fatalf("claimed again: %+v", second)
		}
	}
	changing(t, r, id, crawl.Change{From: running, Hold: &second.Hold, Progress: crawl.Progress{Node: "finish", Steps: 2}})
	if got := query[string](t, pool, "SELECT concat_ws(' ', next_node, coalesce(node_state::text, '-'), steps_done, node_attempts) FROM crawl_runs"); got != "finish - 2 0" {
		t.Errorf("progress is %s", got)
	}
	done := changing(t, r, id, crawl.Change{From: running, To: crawl.Completed, Events: of(crawl.RunCompleted), Hold: &second.Hold, Progress: crawl.Progress{Steps: 3}})
	if done.Run.Status != crawl.Completed || query[int](t, pool, "SELECT num_nonnulls(lease_owner, lease_expires_at, next_node) FROM crawl_runs") != 0 {
		t.Errorf("the end: %+v; or it is still leased", done)
	}
}

func TestRenewRun(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	newRun(t, r, demo)
	c := claim(t, r, 50*time.Millisecond)
	time.Sleep(60 * time.Millisecond) // lapsed, and nobody's else
	status, held, err := r.RenewRun(t.Context(), c.Run.ID, c.Hold, time.Hour)
	if err != nil || !held || status != crawl.Running {
		t.Fatalf("got %s, held %t, error %v", status, held, err)
	}
	if left := query[float64](t, pool, "SELECT extract(epoch FROM lease_expires_at - now())::float8 FROM crawl_runs"); left < 3500 || left > 3600 {
		t.Errorf("%.1f s are left of an hour", left)
	}
	changing(t, r, c.Run.ID, crawl.Change{From: []crawl.Status{crawl.Pending, crawl.Running}, To: crawl.Cancelled, Events: of(crawl.RunCancelled)})
	if status, held, err := r.RenewRun(t.Context(), c.Run.ID, c.Hold, time.Hour); err != nil || held || status != crawl.Cancelled {
		t.Errorf("cancelled: got %s, held %t, error %v", status, held, err)
	}
	var state *crawl.StateError
	if _, err := r.Change(t.Context(), acme, c.Run.ID, crawl.Change{From: []crawl.Status{crawl.Running}, Events: of("A"), Hold: &c.Hold}); !errors.As(err, &state) || state.Status != crawl.Cancelled {
		t.Errorf("the worker of a cancelled run goes on: %v, want a *StateError", err)
	}
	noRun(t, r, "demo")
	if _, _, err := r.RenewRun(t.Context(), uuid.New(), c.Hold, time.Hour); !errors.Is(err, crawl.ErrNotFound) {
		t.Errorf("no run: got %v", err)
	}
}

// A claim whose first events are refused claims nothing.
func TestRefusedClaimLeavesNothing(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	newRun(t, r, demo)
	bad := func(crawl.Run) []crawl.NewEvent {
		return []crawl.NewEvent{{Type: "A", Payload: json.RawMessage(`"\u0000"`)}}
	}
	if _, err := r.ClaimRun(t.Context(), uuid.New(), []string{"demo"}, time.Minute, bad); !errors.Is(err, crawl.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	if got := query[string](t, pool, "SELECT concat_ws(' ', status, lease_epoch, node_attempts, (SELECT count(*) FROM crawl_events)) FROM crawl_runs"); got != "PENDING 0 0 0" {
		t.Errorf("left is %s", got)
	}
	if c := claim(t, r, time.Minute); fmt.Sprint(c.Hold.Epoch, c.Progress.Attempts) != "1 1" {
		t.Errorf("then: %+v", c)
	}
}

// A run whose log was ended by plain SQL is given that end, and keeps no worker from the runs after it.
func TestClaimRunPassesOverRunsThatAreOver(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	pending, running := newRun(t, r, demo), newRun(t, r, demo)
	changing(t, r, running.ID, crawl.Change{To: crawl.Running, Events: of(crawl.RunStarted)})
	const end = "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, $2, '{}')"
	exec(t, pool, end, pending.ID, crawl.RunCancelled)
	exec(t, pool, end, running.ID, crawl.RunFailed)
	fine := newRun(t, r, demo)
	worker, err := OpenRuns(t.Context(), as(t, pool, "outbox_worker")) // its rights are enough
	if err != nil {
		t.Fatal(err)
	}
	if c := claim(t, worker, time.Minute); c.Run.ID != fine.ID {
		t.Errorf("claimed %+v, want the run that is not over", c)
	}
	noRun(t, worker, "demo")
	for _, c := range []struct {
		run  crawl.Run
		want string
	}{{pending, "CANCELLED f t 0 1"}, {running, "FAILED t f 0 2"}} {
		got := query[string](t, pool, `SELECT concat_ws(' ', status, started_at IS NOT NULL, cancelled_at IS NOT NULL, num_nonnulls(lease_owner, lease_expires_at) + lease_epoch,
			(SELECT max(seq) FROM crawl_events WHERE crawl_id = r.id)) FROM crawl_runs r WHERE id = $1`, c.run.ID)
		if got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
