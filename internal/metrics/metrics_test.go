package metrics

import (
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(m, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w,
		httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(text, l+"\n") {
			t.Errorf("%s is missing in:\n%s", l, text)
		}
	}
}

// docs/reference/metrics.md has a row for each metric.
func TestMetricsOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics := described(t)
	for name := range metrics {
		if !strings.Contains(string(page), "\n| `"+name+"` | ") {
			t.Errorf("docs/reference/metrics.md has no row of %s", name)
		}
	}
	if rows := strings.Count(string(page), "\n| `outbox_"); rows != len(metrics) {
		t.Errorf("docs/reference/metrics.md has %d metrics, there are %d", rows, len(metrics))
	}
}

func TestObserveBatch(t *testing.T) {
	m := New()
	m.Watch(func() relay.Health {
		return relay.Health{Tables: map[string]relay.TableHealth{"orders": {}}}
	})
	want(t, scrape(t, m), `outbox_published_total{table="orders"} 0`,
		`outbox_delivery_latency_seconds_count{table="orders"} 0`)
	m.ObserveBatch(outbox.BatchReport{
		Table:   "orders",
		Settled: outbox.Settled{Delivered: 5, Retried: 4, Dead: 3, Lost: 2}, Duplicates: 1, Owed: 6, Unavailable: true,
		Latencies: []time.Duration{400 * time.Microsecond, 40 * time.Second}, Claim: time.Millisecond,
		Publish: 2 * time.Millisecond, Settle: 3 * time.Millisecond,
	})
	m.ObserveBatch(outbox.BatchReport{Table: "orders", Settled: outbox.Settled{Delivered: 1}})
	want(t, scrape(t, m),
		`outbox_published_total{table="orders"} 6`, `outbox_retried_total{table="orders"} 4`,
		`outbox_dead_total{table="orders"} 3`, `outbox_lost_total{table="orders"} 2`,
		`outbox_duplicates_refused_total{table="orders"} 1`, `outbox_owed_total{table="orders"} 6`, `outbox_batches_total{table="orders"} 2`,
		`outbox_sink_unavailable_total{table="orders"} 1`,
		`outbox_delivery_latency_seconds_bucket{table="orders",le="0.0005"} 1`,
		`outbox_delivery_latency_seconds_bucket{table="orders",le="30"} 1`,
		`outbox_delivery_latency_seconds_bucket{table="orders",le="60"} 2`, `outbox_settle_seconds_sum{table="orders"} 0.003`,
		`outbox_claim_seconds_count{table="orders"} 2`)
}

func TestGauges(t *testing.T) {
	m := New()
	health := func(b *outbox.Backlog, down bool) relay.Health {
		return relay.Health{
			Tables: map[string]relay.TableHealth{"orders": {Lanes: 64, Backlog: b},
				"outbox_deliveries/orders/audit": {Lanes: 64, Backlog: b, Sink: "audit", Of: "orders"}},
			Sinks: map[string]relay.SinkHealth{"default": {Down: down}},
		}
	}
	now := health(&outbox.Backlog{Count: 7, Oldest: 90 * time.Second}, false)
	m.Watch(func() relay.Health { return now })
	want(t, scrape(t, m), `outbox_lanes_held{table="orders"} 64`, `outbox_backlog_events{table="orders"} 7`,
		`outbox_oldest_undelivered_seconds{table="orders"} 90`, `outbox_sink_down{sink="default"} 0`, `outbox_relay_ready 0`,
		`outbox_owed_deliveries{sink="audit",table="orders"} 7`, `outbox_oldest_owed_seconds{sink="audit",table="orders"} 90`)
	if text := scrape(t, m); strings.Contains(text, `outbox_backlog_events{table="outbox_deliveries`) {
		t.Errorf("what a sink owes is a backlog too:\n%s", text)
	}
	now = health(nil, true)
	now.Ready = true
	text := scrape(t, m)
	if strings.Contains(text, "outbox_backlog_events{") || strings.Contains(text, "outbox_oldest_undelivered_seconds{") ||
		strings.Contains(text, "owed_deliveries{") || strings.Contains(text, "oldest_owed_seconds{") {
		t.Error("a backlog that nobody knows is still shown")
	}
	want(t, text, `outbox_sink_down{sink="default"} 1`, `outbox_relay_ready 1`)
}
