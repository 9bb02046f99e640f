package metrics

import (
	"strings"
	"testing"
	"time"
)

func TestWatchStreams(t *testing.T) {
	m, now := New(), Streams{Live: true, Open: 3, Sources: 2, Channels: 1}
	m.WatchStreams(func() Streams { return now })
	want(t, scrape(t, m), "outbox_streams_open 3", "outbox_stream_sources 2", "outbox_stream_channels 1",
		"outbox_stream_broker_up 1", "outbox_stream_gaps_total 0")
	now = Streams{Sent: 1, FromLive: 2, FromLog: 3, Gaps: 4, Resets: 5, Slow: 6, Refused: 7, LogErrors: 8, Reconnects: 9}
	want(t, scrape(t, m), "outbox_streams_open 0", "outbox_stream_broker_up 0", "outbox_stream_events_total 1",
		"outbox_stream_live_total 2", "outbox_stream_log_total 3",
		"outbox_stream_gaps_total 4", "outbox_stream_resets_total 5", "outbox_stream_slow_total 6",
		"outbox_stream_refused_total 7", "outbox_stream_log_errors_total 8",
		"outbox_stream_broker_reconnects_total 9")
}

func TestHTTP(t *testing.T) {
	m := New()
	h := m.HTTP()
	h.Observe("GET /v1/runs", 200, 2*time.Millisecond, false)
	h.Observe("GET /v1/runs", 503, time.Second, false)
	h.Observe("GET /v1/stream", 200, time.Hour, true)
	text := scrape(t, m)
	want(t, text, `outbox_http_requests_total{route="GET /v1/runs",status="200"} 1`,
		`outbox_http_requests_total{route="GET /v1/runs",status="503"} 1`,
		`outbox_http_request_seconds_bucket{route="GET /v1/runs",le="0.0025"} 1`,
		`outbox_http_request_seconds_count{route="GET /v1/runs"} 2`,
		`outbox_http_requests_total{route="GET /v1/stream",status="200"} 1`)
	if strings.Contains(text, `outbox_http_request_seconds_count{route="GET /v1/stream"}`) {
		t.Error("a stream counts as a slow request")
	}
}
