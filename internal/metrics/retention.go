package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/outbox/internal/store/retention"
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

// Retaining says that a table's old rows are archived or deleted, so that its counters are there
// from the start.
func (m *Metrics) Retaining(table string, archive retention.Archive) {
	m.ObserveRemoved(table, archive.Action(), 0)
	m.retention.failures.WithLabelValues(table)
}

// ObserveRemoved implements outbox.Observer.
func (m *Metrics) ObserveRemoved(table, action string, rows int) {
	m.retention.rows.WithLabelValues(table, action).Add(float64(rows))
}

// ObserveRun implements outbox.Observer.
func (m *Metrics) ObserveRun(table string, err error) {
	if err != nil {
		m.retention.failures.WithLabelValues(table).Inc()
		return
	}
	m.retention.last.WithLabelValues(table).SetToCurrentTime()
}
