package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/outbox/server/crawl"
)

// Runs is the crawl.Observer of a worker.
type Runs struct {
	claimed, ended *prometheus.CounterVec
	steps          prometheus.Counter
}

// Runs returns the metrics of a worker. It may be called once.
func (m *Metrics) Runs() *Runs {
	r := &Runs{
		claimed: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "runs_claimed_total",
			Help: "Runs that this worker took and has let go of; resumed: another had begun them."}, []string{"resumed"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "runs_ended_total",
			Help: "The same by the status they were left in; RUNNING: for another worker to go on with."}, []string{"status"}),
		steps: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "run_steps_total",
			Help: "Nodes that this worker finished, when it let go of their runs."}),
	}
	m.Registry.MustRegister(r.claimed, r.ended, r.steps)
	for _, resumed := range []bool{false, true} {
		r.claimed.WithLabelValues(strconv.FormatBool(resumed))
	}
	for _, status := range crawl.Statuses {
		if status != crawl.Pending {
			r.ended.WithLabelValues(string(status))
		}
	}
	return r
}

// WatchCrawling makes a metric of how many runs a worker crawls now; read is called for each
// scrape. It may be called once.
func (m *Metrics) WatchCrawling(read func() int) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "runs_crawling",
		Help: "Runs that this worker crawls now."},
		func() float64 { return float64(read()) }))
}

// ObserveRun implements crawl.Observer.
func (r *Runs) ObserveRun(report crawl.RunReport) {
	r.claimed.WithLabelValues(strconv.FormatBool(report.Resumed)).Inc()
	r.ended.WithLabelValues(string(report.Status)).Inc()
	r.steps.Add(float64(report.Steps))
}
