package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/outbox/retention"
)

// retentionMetrics are filled by whichever relay has a table's maintenance at the time.
type retentionMetrics struct {
	rows     *prometheus.CounterVec
	failures *prometheus.CounterVec
	last     *prometheus.GaugeVec
}

func newRetentionMetrics(r *prometheus.Registry) retentionMetrics {
	m := retentionMetrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "retention_rows_total",
			Help: "Old rows that left their table, archived or deleted."}, []string{"table", "action"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "retention_failures_total",
			Help: "Runs of retention that failed."}, []string{"table"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "retention_last_run_timestamp_seconds",
			Help: "When this relay last completed a run of retention; of several relays the highest counts."},
			[]string{"table"}),
	}
	r.MustRegister(m.rows, m.failures, m.last)
	return m
}

// Retention is the retention.Observer of one table.
type Retention struct {
	metrics *retentionMetrics
	table   string
}

// Retention returns the metrics of a table whose old rows are archived or deleted.
func (m *Metrics) Retention(table string, archive retention.Archive) *Retention {
	r := &Retention{metrics: &m.retention, table: table}
	r.ObserveRemoved(archive.Action(), 0) // so that it exists
	m.retention.failures.WithLabelValues(table)
	return r
}

// ObserveRemoved implements retention.Observer.
func (r *Retention) ObserveRemoved(action string, rows int) {
	r.metrics.rows.WithLabelValues(r.table, action).Add(float64(rows))
}

// ObserveRun implements retention.Observer.
func (r *Retention) ObserveRun(err error) {
	if err != nil {
		r.metrics.failures.WithLabelValues(r.table).Inc()
		return
	}
	r.metrics.last.WithLabelValues(r.table).SetToCurrentTime()
}
