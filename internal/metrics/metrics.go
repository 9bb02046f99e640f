// Package metrics tells Prometheus what relays do.
//
// Guaranteed: one registry of its own, so that nothing else in the process gets in. Every outbox_
// metric of a table has the label table. Counters of a table exist, at zero, before its first
// event, so that a rate over them is never absent. A gauge whose source fails disappears rather
// than show its last value.
//
// Not guaranteed: agreement with the tables after a crash. Counters are this process's own and
// start again with it.
package metrics

import (
	"regexp"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pause"
	"github.com/outboxrelay/outbox/internal/version"
	"github.com/outboxrelay/outbox/relay"
)

const namespace = "outbox"

// Metrics is the registry and what is in it.
type Metrics struct {
	Registry *prometheus.Registry

	published, duplicates, retried, dead, lost, batches, unavailable, spilled *prometheus.CounterVec
	claim, publish, settle, latency                                           *prometheus.HistogramVec
	ready, lanes, backlog, oldest, paused                                     *prometheus.GaugeVec
	owed, oldestOwed, unserved, sinkDown, letters, conditions, unknown, build *prometheus.GaugeVec
	retention                                                                 retentionMetrics
	consumers                                                                 consumerMetrics

	relay  func() relay.Health // nil: nobody watches one
	mu     sync.Mutex
	tables map[string]*table
	// lettersOf are the labels of letters that were there.
	lettersOf map[string][]string
}

// New returns a registry with the relay's metrics and those of the Go runtime and the process.
func New() *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry(), tables: map[string]*table{}, lettersOf: map[string][]string{}}
	m.Registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counter := func(dst **prometheus.CounterVec, name, help string) {
		*dst = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help},
			[]string{"table"})
		m.Registry.MustRegister(*dst)
	}
	histogram := func(dst **prometheus.HistogramVec, name, help string, buckets []float64) {
		*dst = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help,
			Buckets: buckets}, []string{"table"})
		m.Registry.MustRegister(*dst)
	}
	gauge := func(dst **prometheus.GaugeVec, name, help string, labels ...string) {
		*dst = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
		m.Registry.MustRegister(*dst)
	}
	counter(&m.published, "published_total", "Events delivered to every destination and settled.")
	counter(&m.duplicates, "duplicates_refused_total", "Deliveries that the sink refused as copies.")
	counter(&m.retried, "retried_total",
		"Events put off to be tried again: after a failed attempt, or because a part of the sink was down.")
	counter(&m.dead, "dead_total", "Events that became dead letters.")
	counter(&m.lost, "lost_total",
		"Outcomes not settled because the lane had gone to another relay, which publishes those events again.")
	counter(&m.batches, "batches_total", "Batches with at least one event.")
	counter(&m.spilled, "owed_total", "Deliveries that a sink of a table with routes did not take at once.")
	counter(&m.unavailable, "sink_unavailable_total", "Batches that found the sink, or a part of it, down.")

	step := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	histogram(&m.claim, "claim_seconds", "Time to claim a batch that had events.", step)
	histogram(&m.publish, "publish_seconds", "Time to publish a batch.", step)
	histogram(&m.settle, "settle_seconds", "Time to settle a batch, with its repetitions while the database was down.",
		step)
	histogram(&m.latency, "delivery_latency_seconds",
		"From an event's insert, by the database's clock, to the sink's answer, by the relay's.",
		[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60})

	gauge(&m.ready, "relay_ready", "1 while /readyz answers 200 for this relay, else 0.")
	gauge(&m.lanes, "lanes_held", "Lanes this relay serves, of 64.", "table")
	gauge(&m.paused, "paused", "1 while an operator has paused the table, or topics or destinations of it, else 0.",
		"table")
	gauge(&m.backlog, "backlog_events", "Undelivered events in the table; counting stops at 100000.", "table")
	gauge(&m.oldest, "oldest_undelivered_seconds", "Age of the oldest undelivered event, 0 without one.", "table")
	gauge(&m.owed, "owed_deliveries",
		"Events of the table that the sink has still to take; counting stops at 100000.", "table", "sink")
	gauge(&m.oldestOwed, "oldest_owed_seconds",
		"Age of the oldest event of the table that the sink has still to take, 0 without one.", "table", "sink")
	gauge(&m.sinkDown, "sink_down", "1 while the sink is down and only probed, else 0.", "sink")
	gauge(&m.letters, "dead_letters_pending",
		"Dead letters that nobody has replayed or discarded, whoever made them; counting stops at 10000.", "table", "source")
	gauge(&m.unserved, "unserved_debts", "1 for a sink that owes events of the table while no relay serves it.",
		"table", "sink")
	gauge(&m.unknown, "unknown_facts", "How many facts and conditions the relay could not read at its last examination.")
	gauge(&m.conditions, "condition", "How many findings of a condition the last look of the relay had, 0 without one; "+
		"outbox doctor says what they are.", "id", "severity")
	m.ObserveConditions(condition.Report{})
	b := version.Of()
	gauge(&m.build, "build_info", "1, and what the process was built from.", "version", "goversion")
	m.build.WithLabelValues(b.Version, b.Go).Set(1)
	m.retention, m.consumers = newRetentionMetrics(m.Registry), newConsumerMetrics(gauge)
	return m
}

// table is the metrics of one table.
type table struct {
	published, duplicates, retried, dead, lost, batches, unavailable, spilled prometheus.Counter
	claim, publish, settle, latency                                           prometheus.Observer
}

// of returns the metrics of a table. The label is resolved once, because ObserveBatch runs inside
// the relay's loop.
func (m *Metrics) of(name string) *table {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[name]
	if t == nil {
		t = &table{
			published: m.published.WithLabelValues(name), duplicates: m.duplicates.WithLabelValues(name),
			retried: m.retried.WithLabelValues(name), dead: m.dead.WithLabelValues(name),
			lost:    m.lost.WithLabelValues(name),
			batches: m.batches.WithLabelValues(name), unavailable: m.unavailable.WithLabelValues(name),
			spilled: m.spilled.WithLabelValues(name),
			claim:   m.claim.WithLabelValues(name), publish: m.publish.WithLabelValues(name),
			settle: m.settle.WithLabelValues(name), latency: m.latency.WithLabelValues(name),
		}
		m.tables[name] = t
	}
	return t
}

// ObserveBatch implements outbox.Observer.
func (m *Metrics) ObserveBatch(b outbox.BatchReport) {
	t := m.of(b.Table)
	t.batches.Inc()
	t.published.Add(float64(b.Settled.Delivered))
	t.retried.Add(float64(b.Settled.Retried))
	t.dead.Add(float64(b.Settled.Dead))
	t.lost.Add(float64(b.Settled.Lost))
	t.duplicates.Add(float64(b.Duplicates))
	t.spilled.Add(float64(b.Owed))
	if b.Unavailable {
		t.unavailable.Inc()
	}
	t.claim.Observe(b.Claim.Seconds())
	t.publish.Observe(b.Publish.Seconds())
	t.settle.Observe(b.Settle.Seconds())
	longest := -1
	for i, l := range b.Latencies {
		if longest < 0 || l > b.Latencies[longest] {
			longest = i
		}
	}
	for i, l := range b.Latencies {
		if i == longest {
			observeTraced(t.latency, l.Seconds(), b.Slowest)
		} else {
			t.latency.Observe(l.Seconds())
		}
	}
}

// observeTraced observes what took longest of a batch, with the record's own trace as exemplar if
// that is sampled. One a batch: to read the metadata of every record would cost more than all else
// here.
func observeTraced(o prometheus.Observer, seconds float64, rec *outbox.Record) {
	if rec != nil {
		parent, _ := (&outbox.Delivery{Record: rec}).TraceContext()
		traced, canTrace := o.(prometheus.ExemplarObserver)
		if id := sampled.FindStringSubmatch(parent); id != nil && canTrace {
			traced.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": id[1], "span_id": id[2]})
			return
		}
	}
	o.Observe(seconds)
}

// sampled is a traceparent of W3C Trace Context whose flags say that the trace is recorded.
var sampled = regexp.MustCompile("^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")

// observeDeadLetters sets the counts of pending dead letters. A table that has none any more stays,
// at zero.
func (m *Metrics) observeDeadLetters(pending []operate.Pending, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.letters.Reset()
		return
	}
	for _, labels := range m.lettersOf {
		m.letters.WithLabelValues(labels...).Set(0)
	}
	for _, p := range append([]operate.Pending{{Source: "event", Table: "outbox_events"}}, pending...) {
		labels := []string{p.Table, p.Source}
		m.letters.WithLabelValues(labels...).Set(float64(p.Letters))
		m.lettersOf[strings.Join(labels, "/")] = labels
	}
}

// ObserveConditions takes over what an examination has found.
func (m *Metrics) ObserveConditions(r condition.Report) {
	found := map[string]float64{}
	for _, f := range r.Findings {
		found[f.ID]++
	}
	unknown := map[string]bool{}
	count := 0
	for _, u := range r.Unseen {
		unknown[u.ID] = true
		if u.State == operate.Unknown {
			count++
		}
	}
	m.unknown.WithLabelValues().Set(float64(count))
	for _, c := range condition.Watched() {
		if unknown[c.ID] && found[c.ID] == 0 {
			m.conditions.DeleteLabelValues(c.ID, c.Severity.String())
			continue
		}
		m.conditions.WithLabelValues(c.ID, c.Severity.String()).Set(found[c.ID])
	}
}

// Watch makes the gauges those of a relay. It is called once, before the first Gather.
func (m *Metrics) Watch(relay func() relay.Health) { m.relay = relay }

// Gather implements prometheus.Gatherer. The relay is asked each time: lanes change hands in
// milliseconds, and their sum over all relays is what one watches.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	if m.relay != nil {
		m.set(m.relay())
	}
	return m.Registry.Gather()
}

// set sets the gauges of a relay. What is not known disappears, but for whether the relay is ready.
func (m *Metrics) set(h relay.Health) {
	m.ready.WithLabelValues().Set(zeroOrOne(h.Ready))
	for name, t := range h.Tables {
		m.of(name)
		m.lanes.WithLabelValues(name).Set(float64(t.Lanes))
		m.paused.WithLabelValues(name).Set(zeroOrOne(pause.Any(t.Paused)))
		count, oldest, labels := m.backlog, m.oldest, []string{name}
		if t.Of != "" {
			count, oldest, labels = m.owed, m.oldestOwed, []string{t.Of, t.Sink}
		}
		if t.Backlog == nil {
			count.DeleteLabelValues(labels...)
			oldest.DeleteLabelValues(labels...)
			continue
		}
		count.WithLabelValues(labels...).Set(float64(t.Backlog.Count))
		oldest.WithLabelValues(labels...).Set(t.Backlog.Oldest.Seconds())
	}
	m.unserved.Reset()
	for _, d := range h.Unserved {
		m.unserved.WithLabelValues(d.Table, d.Sink).Set(1)
	}
	for name, s := range h.Sinks {
		m.sinkDown.WithLabelValues(name).Set(zeroOrOne(s.Down))
	}
}

func zeroOrOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
