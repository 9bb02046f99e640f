package app

import (
	"net/http"
	"strings"
	"time"

	"github.com/outboxrelay/outbox/internal/metrics"
)

// routes are the API's, for the metrics' labels: what else somebody asks for is "other". A test
// holds them against the API's own description.
var routes = []string{
	"POST /v1/runs", "GET /v1/runs", "GET /v1/runs/{id}", "GET /v1/runs/{id}/events", "POST /v1/runs/{id}/events",
	"POST /v1/runs/{id}/start",
	"POST /v1/runs/{id}/complete", "POST /v1/runs/{id}/fail", "POST /v1/runs/{id}/cancel", "GET /v1/runs/{id}/stream",
	"GET /v1/stream",
	"POST /v1/stream-tickets",
	"GET /v1/subscriptions", "PUT /v1/subscriptions/{name}", "DELETE /v1/subscriptions/{name}",
	nextRoute, "POST /v1/subscriptions/{name}/ack", "POST /v1/subscriptions/{name}/nack",
	"GET /v1/subscriptions/{name}/stream",
	"GET /v1/admin/session", "GET /v1/admin/overview", "GET /v1/admin/overview/stream", "GET /v1/admin/history",
	"GET /v1/admin/conditions", "GET /v1/admin/tables/{table}/lanes", "GET /v1/admin/tables/{table}/backlog",
	"GET /v1/admin/pauses", "POST /v1/admin/pauses", "POST /v1/admin/resume", "GET /v1/admin/audit",
	"GET /v1/admin/settings",
	"GET /v1/admin/events", "GET /v1/admin/events/{id}", "GET /v1/admin/events/{id}/payload",
	"POST /v1/admin/events/preview", "POST /v1/admin/events/retry", "POST /v1/admin/events/skip",
	"GET /v1/admin/letters", "GET /v1/admin/letters/groups", "GET /v1/admin/letters/{id}",
	"POST /v1/admin/letters/preview", "POST /v1/admin/letters/replay", "POST /v1/admin/letters/discard",
}

// nextRoute waits for its answer, as streams do.
const nextRoute = "GET /v1/subscriptions/{name}/events"

// measured counts and times requests.
func measured(next http.Handler, m *metrics.HTTP) http.Handler {
	known := http.NewServeMux()
	for _, route := range routes {
		known.Handle(route, next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := known.Handler(r)
		if route == "" {
			route = "other"
		}
		began, seen := time.Now(), &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() { // also of a stream that is cut off, which is a panic
			m.Observe(route, seen.status, time.Since(began), strings.HasSuffix(route, "/stream") || route == nextRoute)
		}()
		next.ServeHTTP(seen, r)
	})
}

// statusWriter remembers the status. What it wraps stays reachable for http.ResponseController,
// which streams need.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
