package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/server/crawl"
)

// shareTests are about what tenants leave each other of the workers.
func shareTests() []test {
	return []test{
		{name: "gives a run of the tenant with the fewest", run: givesTenantWithFewest},
		{name: "has tenants with as many take turns", run: hasTenantsTakeTurns},
		{name: "counts the runs that are held, not those whose worker died", run: countsHeldRuns},
		{name: "limits the runs of a tenant that wait", run: limitsWaitingRuns},
		{name: "limits them also when many create runs at once", run: limitsWaitingRunsAtOnce},
	}
}

const umbrella = "umbrella"

// wait inserts n runs that a worker may claim. Those of one call are as old as each other.
func (r runSuite) wait(t *testing.T, tenant string, n int, age time.Duration) {
	t.Helper()
	const insert = "INSERT INTO crawl_runs (tenant_id, app_package, crawler, created_at) VALUES (?1, 'p', 'demo', ?2)"
	for range n {
		r.Exec(t, insert, tenant, time.Now().Add(-age))
	}
}

// claims claims n runs and returns whose they were.
func (r runSuite) claims(t *testing.T, n int) (tenants []string, claimed []crawl.Claim) {
	t.Helper()
	for range n {
		c := r.claim(t, time.Minute)
		tenants, claimed = append(tenants, c.Run.Tenant), append(claimed, c)
	}
	return tenants, claimed
}

func (r runSuite) complete(t *testing.T, c crawl.Claim) {
	t.Helper()
	done := crawl.Change{From: runningOnly, To: crawl.Completed, Events: runEvents(crawl.RunCompleted), Hold: &c.Hold}
	if _, err := r.Change(t.Context(), c.Run.Tenant, c.Run.ID, done); err != nil {
		t.Fatal(err)
	}
}

// A tenant that has queued many runs keeps another one waiting for no longer than a worker takes to
// get free.
func givesTenantWithFewest(t *testing.T, s *suite) {
	r := s.runs(t)
	r.wait(t, acme, 20, time.Hour)
	if tenants, _ := r.claims(t, 4); strings.Join(tenants, " ") != "acme acme acme acme" {
		t.Fatalf("claimed of %v, and only acme has runs", tenants)
	}
	r.wait(t, umbrella, 3, 0)
	r.wait(t, "zenith", 1, 0)
	tenants, _ := r.claims(t, 4)
	if slices.Sort(tenants[:2]); strings.Join(tenants, " ") != "umbrella zenith umbrella umbrella" {
		t.Errorf("claimed of %v, want zenith's and umbrella's before acme's fifth", tenants)
	}
	tenants, _ = r.claims(t, 3)
	if strings.Join(tenants, " ") != "acme acme acme" {
		t.Errorf("claimed of %v, and only acme has more", tenants)
	}
}

// One worker with one run at a time: no tenant ever holds one when it claims, so all have as many.
func hasTenantsTakeTurns(t *testing.T, s *suite) {
	r := s.runs(t)
	r.wait(t, umbrella, 10, 2*time.Hour)
	r.wait(t, acme, 10, time.Hour)
	r.wait(t, "zenith", 2, 0)
	seen := map[string]int{}
	for range 6 {
		tenants, claimed := r.claims(t, 1)
		seen[tenants[0]]++
		r.complete(t, claimed[0])
	}
	if got := fmt.Sprint(seen); got != "map[acme:2 umbrella:2 zenith:2]" {
		t.Errorf("six claims gave %s, want two of each tenant", got)
	}
}

// Runs whose worker died are RUNNING and nobody's: they must not count against their tenant, or it
// would never get one back while another's tenant has some that wait.
func countsHeldRuns(t *testing.T, s *suite) {
	r := s.runs(t)
	r.wait(t, umbrella, 3, 0)
	_, lapsed := r.claims(t, 3)
	for _, c := range lapsed {
		r.Exec(t, "UPDATE crawl_runs SET lease_expires_at = ?2 WHERE id = ?1", c.Run.ID, time.Now().Add(-time.Second))
	}
	r.wait(t, acme, 20, time.Hour)
	tenants, _ := r.claims(t, 4)
	if slices.Sort(tenants); strings.Join(tenants, " ") != "acme acme umbrella umbrella" {
		t.Errorf("claimed of %v, want two of each tenant", tenants)
	}
}

func limitsWaitingRuns(t *testing.T, s *suite) {
	const most = 3
	r := s.runs(t)
	create := func(tenant, crawler, key string) (crawl.Run, bool, error) {
		return r.CreateRun(t.Context(), tenant,
			crawl.NewRun{AppPackage: "p", MaxSteps: 1, Crawler: crawler, IdempotencyKey: key}, most)
	}
	fits := func(what, tenant, crawler, key string, wantNew bool) crawl.Run {
		t.Helper()
		run, created, err := create(tenant, crawler, key)
		if err != nil || created != wantNew {
			t.Fatalf("%s: created %t, error %v", what, created, err)
		}
		return run
	}
	full := func(what string) {
		t.Helper()
		for _, crawler := range []string{crawl.External, "demo"} {
			var quota *crawl.QuotaError
			if _, created, err := create(acme, crawler, ""); !errors.As(err, &quota) || quota.Most != most || created {
				t.Errorf("%s: created %t, error %v, want a *QuotaError", what, created, err)
			}
		}
	}
	external := fits("the first", acme, crawl.External, "", true)
	fits("the second", acme, "demo", "", true)
	keyed := fits("the third", acme, "demo", "k", true)
	full("three that wait")
	if again := fits("a key that was used", acme, "demo", "k", false); again.ID != keyed.ID {
		t.Errorf("the key gave run %s, want %s", again.ID, keyed.ID)
	}
	if _, _, err := create(acme, crawl.External, "k"); !errors.Is(err, crawl.ErrKeyReused) {
		t.Errorf("a key with other content: %v", err)
	}
	fits("another tenant", umbrella, "demo", "", true)

	// Started by hand a run goes on waiting for its worker; one without a worker does not.
	start := crawl.Change{To: crawl.Running, Events: runEvents(crawl.RunStarted)}
	r.change(t, keyed.ID, start)
	full("one of them started by hand")
	start.Events = runEvents(crawl.RunStarted)
	r.change(t, external.ID, start)
	fits("one that is driven from outside has begun", acme, crawl.External, "", true)
	full("three again")
	for range 2 {
		if c := r.claim(t, time.Minute); c.Run.Tenant == acme {
			break
		}
	}
	fits("a worker has taken one", acme, "demo", "", true)
	full("and three again")
}

func limitsWaitingRunsAtOnce(t *testing.T, s *suite) {
	const most = 5
	r := s.runs(t)
	var created, refused atomic.Int64
	together(20, func(int) {
		var quota *crawl.QuotaError
		switch _, _, err := r.CreateRun(t.Context(), acme, crawl.NewRun{AppPackage: "p", MaxSteps: 1, Crawler: "demo"},
			most); {
		case err == nil:
			created.Add(1)
		case errors.As(err, &quota):
			refused.Add(1)
		default:
			t.Error(err)
		}
	})
	if created.Load() != most || refused.Load() != 20-most {
		t.Errorf("%d created and %d refused, want %d and %d", created.Load(), refused.Load(), most, 20-most)
	}
	r.wants(t, "rows", fmt.Sprint(most), "SELECT count(*) FROM crawl_runs")
}
