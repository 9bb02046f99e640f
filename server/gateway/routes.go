package gateway

import (
	"net/http"
	"strings"
)

// New returns a gateway, or everything that is wrong with cfg.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, log: cfg.Logger, streams: newStreams(cfg.Streams), answers: newAnswers(cfg.MaxAnswers)}
	mux := http.NewServeMux()
	g.api = g.newAPI(mux)
	g.routeRuns()
	g.routeChanges()
	g.routeEvents()
	g.routeTickets()
	if cfg.Hub != nil {
		g.routeStreams(mux)
	}
	if err := g.routeDescription(mux); err != nil {
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
