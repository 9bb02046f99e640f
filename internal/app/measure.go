package app

import (
	"net/http"
	"strings"
	"time"

	"github.com/outboxrelay/outbox/internal/metrics"
)

// nextRoute waits for its answer, as streams do.
const nextRoute = "GET /v1/subscriptions/{name}/events"

// measured counts and times requests by their routes. What is none of these is "other".
func measured(next http.Handler, routes []string, m *metrics.HTTP) http.Handler {
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
