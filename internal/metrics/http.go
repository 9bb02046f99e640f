package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// HTTP is what is known of the API's requests.
type HTTP struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

// HTTP returns the metrics of an API. It may be called once.
func (m *Metrics) HTTP() *HTTP {
	h := &HTTP{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "http_requests_total",
			Help: "Requests answered; a stream when it ends."}, []string{"route", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "http_request_seconds",
			Help:    "Time to answer a request; of streams nothing is known here.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"route"}),
	}
	m.Registry.MustRegister(h.requests, h.took)
	return h
}

// Observe counts a request. The route is one of a known few, or every path that somebody tries
// would stay in memory.
func (h *HTTP) Observe(route string, status int, took time.Duration, stream bool) {
	h.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	if !stream {
		h.took.WithLabelValues(route).Observe(took.Seconds())
	}
}
