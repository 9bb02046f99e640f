package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/outbox/internal/store/operate"
)

// consumerMetrics are those of groups and subscriptions, of whatever process: a relay reads them.
type consumerMetrics struct {
	processes, backlog, oldest, waiting, asked *prometheus.GaugeVec
}

func newConsumerMetrics(gauge func(**prometheus.GaugeVec, string, string, ...string)) (m consumerMetrics) {
	gauge(&m.processes, "group_processes", "Processes of the consumer group that are alive.", "table", "group")
	gauge(&m.backlog, "group_backlog_events",
		"Events that the group has still to handle, failed ones included; counting stops at 10000.", "table", "group")
	gauge(&m.oldest, "group_oldest_seconds", "Age of the oldest of them, 0 without one.", "table", "group")
	gauge(&m.waiting, "subscription_backlog_events", "Rows of the log that the subscription has still to fetch, and "+
		"events that it has fetched and that are not acknowledged; 0 while it is paused.", "subscription")
	gauge(&m.asked, "subscription_asked_seconds", "Time since a consumer of the subscription last asked for events.",
		"subscription")
	return m
}

// ObserveFacts sets the metrics of dead letters, groups and subscriptions. After an error they are
// absent.
func (m *Metrics) ObserveFacts(f operate.Facts, err error) {
	c := m.consumers
	for _, g := range []*prometheus.GaugeVec{c.processes, c.backlog, c.oldest, c.waiting, c.asked} {
		g.Reset()
	}
	if letters := f.Parts["job_dlq"]; err == nil && letters.State != operate.Known {
		m.observeDeadLetters(nil, errors.New(letters.Why))
	} else {
		m.observeDeadLetters(f.DeadLetters, err)
	}
	for _, g := range f.Groups() {
		if g.Life == "new" {
			continue
		}
		c.processes.WithLabelValues(g.Table, g.Group).Set(float64(len(g.Alive())))
		if g.State == operate.Known {
			c.backlog.WithLabelValues(g.Table, g.Group).Set(float64(g.Waiting))
			c.oldest.WithLabelValues(g.Table, g.Group).Set(orZero(g.Oldest))
		}
	}
	for _, s := range f.Subscriptions {
		waiting := s.Waiting
		if s.PausedAt != nil {
			waiting = 0
		}
		c.waiting.WithLabelValues(s.Name).Set(float64(waiting))
		c.asked.WithLabelValues(s.Name).Set(max(f.At.Sub(s.AskedAt).Seconds(), 0))
	}
}

func orZero(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}
