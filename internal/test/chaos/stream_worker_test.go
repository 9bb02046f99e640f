package chaos

import (
	"encoding/json"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
)

// runLease is how long a run stays reserved for a worker that died: shorter than the default of 10
// s, so that a test need not wait as long.
const runLease = 2 * time.Second

// worker starts a process that crawls runs and does nothing else.
func (s *streaming) worker() *relayProcess {
	s.t.Helper()
	return s.serve("--parts=worker", "--lease-ttl", runLease.String())
}

// crawl makes runs for workers, each with viewers.
func (s *streaming) crawl(crawlers ...string) {
	s.t.Helper()
	for _, name := range crawlers {
		run, _, err := s.runs.Create(s.t.Context(), crawl.DefaultTenant,
			crawl.NewRun{AppPackage: "com.example.shop", Crawler: name})
		s.must(err)
		s.ids = append(s.ids, run.ID)
		s.follow(run.ID, 3)
	}
}

// workerKilled kills one of two workers in the middle of its runs, again and again.
func workerKilled(s *streaming) int {
	for range 2 { // one worker has four at a time, so both have some
		s.crawl("script:short", "demo", "script:short", "script:short", "demo", "script:short")
	}
	workers := []*relayProcess{s.worker(), s.worker()}
	for i := range 3 {
		s.atWork()
		s.pause(0, 500*time.Millisecond)
		workers[i%2].kill(s.t)
		workers[i%2] = s.worker()
	}
	return s.crawled()
}

// workerStopped stops a worker for two leases, while another takes its runs over, and lets it go
// on.
func workerStopped(s *streaming) int {
	s.crawl("script:short", "demo")
	zombie := s.worker()
	s.atWork()
	s.pause(0, 500*time.Millisecond)
	zombie.signal(s.t, syscall.SIGSTOP)
	s.worker()
	time.Sleep(2 * runLease)
	zombie.signal(s.t, syscall.SIGCONT)
	return s.crawled()
}

// atWork waits until every worker has runs to lose, or there are none left to take.
func (s *streaming) atWork() {
	s.t.Helper()
	s.eventually("runs are being crawled", `SELECT count(*) FILTER (WHERE status = 'RUNNING' AND lease_expires_at > now()) >= least(5, count(*) FILTER (WHERE status IN ('PENDING', 'RUNNING')))
		FROM crawl_runs WHERE crawler <> 'external'`)
}

// crawled waits for all runs to end, and checks that each node was finished once. It returns how
// often a worker took a run over from another.
func (s *streaming) crawled() (takeovers int) {
	s.t.Helper()
	s.eventually("every run has ended", `SELECT count(*) = 0 FROM crawl_runs WHERE status IN ('PENDING', 'RUNNING')`)
	for _, id := range s.ids {
		s.steps(id)
	}
	if n := s.number("SELECT count(*) FROM crawl_runs WHERE status <> 'COMPLETED'"); n > 0 {
		s.t.Errorf("%d runs have ended otherwise than completed", n)
	}
	return s.number("SELECT sum(lease_epoch - 1)::int FROM crawl_runs")
}

// steps checks that a run's nodes were finished once each, in their order; that the log has no gap
// and one end is for finish to see.
func (s *streaming) steps(run uuid.UUID) {
	s.t.Helper()
	next := 1
	for _, row := range s.log(run) {
		if row.of != crawl.NodeComplete {
			continue
		}
		var visit struct{ Step int }
		if err := json.Unmarshal([]byte(row.payload), &visit); err != nil || visit.Step != next {
			s.t.Errorf("run %s: event %d finishes step %d, %v; want step %d", run, row.seq, visit.Step, err, next)
		}
		next++
	}
	if done := s.number("SELECT steps_done FROM crawl_runs WHERE id = $1", run); done != next-1 || done < 3 {
		s.t.Errorf("run %s: %d nodes are finished in the log, %d in the run, want as many and at least 3", run, next-1, done)
	}
}
