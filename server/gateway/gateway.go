package gateway

import (
	"context"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/server/subscription"
)

// Gateway is the API. It is safe for concurrent use.
type Gateway struct {
	gate
	streams *streams
	waiter  *subscription.Waiter // nil: no subscriptions
	handler http.Handler
	routes  []string
}

// Handler returns the handler of the whole API.
func (g *Gateway) Handler() http.Handler { return g.handler }

// Routes returns what the API takes, as patterns of an http.ServeMux: the labels of its metrics.
func (g *Gateway) Routes() []string { return g.routes }

// StreamStats returns what happened so far.
func (g *Gateway) StreamStats() StreamStats { return g.streams.stats() }

// DrainStreams ends all streams, spread over StreamConfig.DrainWindow, each after the event it is
// sending, and waits for them or for ctx. Those opened meanwhile end at once. The server's listener
// should be closed before, so that clients come back to another gateway. Requests that wait for
// events of subscriptions are answered at once.
func (g *Gateway) DrainStreams(ctx context.Context) {
	if g.waiter != nil {
		g.waiter.Drain()
	}
	g.streams.connections.drain(ctx)
}

// Run ends the answers of tokens that have expired or were revoked, and wakes requests that wait
// for events of subscriptions, until ctx ends. Without it, streams last as long as their
// connections, and requests wait as long as they may.
func (g *Gateway) Run(ctx context.Context) error {
	if g.waiter == nil {
		return g.endRevoked(ctx)
	}
	var running errgroup.Group
	running.Go(func() error { return g.waiter.Run(ctx) })
	running.Go(func() error { return g.endRevoked(ctx) })
	return running.Wait()
}

// Wake has requests that wait for events of subscriptions look at once. It never blocks.
func (g *Gateway) Wake() {
	if g.waiter != nil {
		g.waiter.Wake()
	}
}

// New returns a gateway, or everything that is wrong with cfg.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	gate := gate{refuser{cfg.Logger}, &cfg, &live{byToken: map[string]map[*answering]struct{}{}},
		newCalls(cfg.MaxCalls)}
	g := &Gateway{gate: gate, streams: newStreams(gate)}
	if cfg.Subscriptions != nil {
		g.waiter = subscription.NewWaiter(cfg.Subscriptions, cfg.Logger)
	}
	mux := http.NewServeMux()
	a := newAPI(gate, mux)
	a.routeRuns()
	a.routeChanges()
	a.routeEvents()
	a.routeTickets()
	a.routeSubscriptions(g.waiter)
	for _, route := range cfg.Routes {
		route(a.API)
	}
	if cfg.Hub != nil {
		mux.HandleFunc("GET /v1/runs/{id}/stream", g.streams.streamRun)
		mux.HandleFunc("GET /v1/stream", g.streams.streamTopics)
		describeStreams(a.OpenAPI())
	}
	if err := a.routeDescription(mux); err != nil {
		return nil, err
	}
	for pattern := range operations(a.OpenAPI()) {
		g.routes = append(g.routes, pattern)
	}
	mux.HandleFunc("/", g.notFound(mux))
	g.handler = g.limited(g.identified(g.logged(g.recovered(g.secured(g.shared(g.legible(mux)))))))
	return g, nil
}

// notFound answers what no route takes, in the form of all other errors. A path that takes other
// methods says which.
func (g *Gateway) notFound(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
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
