package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/server/subscription"
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

// ObserveGroups takes over how the groups stand. After an error nothing is known.
func (m *Metrics) ObserveGroups(all []operate.Group, err error) {
	c := m.consumers
	for _, g := range []*prometheus.GaugeVec{c.processes, c.backlog, c.oldest} {
		g.Reset()
	}
	for _, g := range all {
		if err != nil || g.State == "new" {
			continue
		}
		labels, oldest := []string{g.Table, g.Name}, 0.0
		if g.Oldest != nil {
			oldest = *g.Oldest
		}
		c.processes.WithLabelValues(labels...).Set(float64(len(g.Processes)))
		if !g.Hidden {
			c.backlog.WithLabelValues(labels...).Set(float64(g.Waiting))
			c.oldest.WithLabelValues(labels...).Set(oldest)
		}
	}
}

// ObserveSubscriptions takes over how the subscriptions stand, likewise.
func (m *Metrics) ObserveSubscriptions(all []subscription.State, now time.Time) {
	m.consumers.waiting.Reset()
	m.consumers.asked.Reset()
	for _, s := range all {
		waiting := s.Behind + s.Outstanding
		if s.PausedAt != nil {
			waiting = 0
		}
		m.consumers.waiting.WithLabelValues(s.Name).Set(float64(waiting))
		m.consumers.asked.WithLabelValues(s.Name).Set(max(now.Sub(s.SeenAt).Seconds(), 0))
	}
}
