package pgstore

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
)

func demo(n *crawl.NewRun) { n.Crawler = "demo" }

func claim(t *testing.T, r *Runs, ttl time.Duration) crawl.Claim {
	t.Helper()
	c, err := r.ClaimRun(t.Context(), uuid.New(), []string{"demo", "script:x"}, ttl,
		func(crawl.Run) []crawl.NewEvent { return of(crawl.RunStarted) })
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

// A run that somebody changes at this moment is passed over, not waited for.
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
	next := newRun(t, r, demo)
	if c := claim(t, r, time.Minute); c.Run.ID != next.ID {
		t.Errorf("claimed %+v, want the run behind the one that is locked", c)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := claim(t, r, time.Minute); c.Run.ID != locked.ID {
		t.Errorf("claimed %+v, want the run that was locked", c)
	}
}

// A worker's rights are enough to settle a run whose log was ended by plain SQL, and to get past
// it.
func TestClaimRunSettlesAsWorker(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	over := newRun(t, r, demo)
	exec(t, pool, "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, $2, '{}')", over.ID,
		crawl.RunCancelled)
	fine := newRun(t, r, demo)
	worker, err := OpenRuns(t.Context(), as(t, pool, "outbox_worker"))
	if err != nil {
		t.Fatal(err)
	}
	if c := claim(t, worker, time.Minute); c.Run.ID != fine.ID {
		t.Errorf("claimed %+v, want the run that is not over", c)
	}
	if got, err := r.GetRun(t.Context(), acme, over.ID); err != nil || got.Status != crawl.Cancelled {
		t.Errorf("got %+v, error %v", got, err)
	}
}
