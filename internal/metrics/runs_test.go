package metrics

import (
	"testing"

	"github.com/outboxrelay/outbox/server/crawl"
)

func TestRuns(t *testing.T) {
	m := New()
	r := m.Runs()
	m.WatchCrawling(func() int { return 3 })
	want(t, scrape(t, m), "outbox_runs_crawling 3", `outbox_runs_ended_total{status="FAILED"} 0`,
		`outbox_runs_claimed_total{resumed="true"} 0`)
	r.ObserveRun(crawl.RunReport{Status: crawl.Running, Steps: 2})
	r.ObserveRun(crawl.RunReport{Status: crawl.Completed, Steps: 3, Resumed: true})
	want(t, scrape(t, m), `outbox_runs_ended_total{status="RUNNING"} 1`, `outbox_runs_ended_total{status="COMPLETED"} 1`,
		`outbox_runs_claimed_total{resumed="false"} 1`,
		`outbox_runs_claimed_total{resumed="true"} 1`, "outbox_run_steps_total 5")
}
