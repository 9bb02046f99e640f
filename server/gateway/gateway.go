package gateway

import (
	"context"
	"net/http"
	"strings"
)

// Gateway is the API. It is safe for concurrent use.
type Gateway struct {
	gate
	streams *streams
	handler http.Handler
}

// Handler returns the handler of the whole API.
func (g *Gateway) Handler() http.Handler { return g.handler }

// StreamStats returns what happened so far.
func (g *Gateway) StreamStats() StreamStats { return g.streams.stats() }

// DrainStreams ends all streams, spread over StreamConfig.DrainWindow, each after the event it is sending, and waits
// for them or for ctx. Those opened meanwhile end at once. The server's listener should be closed before, so that
// clients come back to another gateway.
func (g *Gateway) DrainStreams(ctx context.Context) { g.streams.connections.drain(ctx) }

// Run ends streams whose tokens have expired or were revoked, until ctx ends. Without it they last as long as their
// connections.
func (g *Gateway) Run(ctx context.Context) error { return g.streams.endRevoked(ctx) }

// New returns a gateway, or everything that is wrong with cfg.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	gate := gate{refuser{cfg.Logger}, &cfg}
	g := &Gateway{gate: gate, streams: newStreams(gate)}
	mux := http.NewServeMux()
	a := newAPI(gate, mux)
	a.routeRuns()
	a.routeChanges()
	a.routeEvents()
	a.routeTickets()
	if cfg.Hub != nil {
		mux.HandleFunc("GET /v1/runs/{id}/stream", g.streams.streamRun)
		mux.HandleFunc("GET /v1/stream", g.streams.streamTopics)
		describeStreams(a.OpenAPI())
	}
	if err := a.routeDescription(mux); err != nil {
		return nil, err
	}
	mux.HandleFunc("/", g.notFound(mux))
	g.handler = g.limited(g.identified(g.logged(g.recovered(g.secured(g.shared(mux))))))
	return g, nil
}

// notFound answers what no route takes, in the form of all other errors. A path that takes other methods says which.
func (g *Gateway) notFound(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != "/" {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) == 0 {
			g.problem(w, r, http.StatusNotFound, "there is nothing at this path: see /openapi.json")
			return
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		g.problem(w, r, http.StatusMethodNotAllowed, "this path takes "+strings.Join(allowed, " and "))
	}
}
