package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/token"
)

// Config configures a Gateway. Zero means the default in parentheses.
type Config struct {
	Runs *crawl.Service // required
	Hub  *stream.Hub    // nil: no streams
	// Auth finds out who makes a request. nil: authentication is off, everybody is crawl.DefaultTenant and may do
	// everything. Then serve on a loopback address only; requests must name localhost or an IP address as their Host,
	// and must not come through a proxy.
	Auth    *token.Authenticator
	Streams StreamConfig
	// RunsOnly refuses topics other than runs. It is for relays that publish bare payloads: nothing tells then whose a
	// topic's message is, nor who wrote it.
	RunsOnly bool

	// AllowedOrigins are those whose pages may call the API from a browser, such as https://app.example.com (none).
	// http://localhost:* is every port of a host. "*" is everybody's, and only without authentication.
	AllowedOrigins []string
	// PublicURL is where clients reach this server, such as https://api.example.com. It begins streamUrl and Location;
	// without it they are paths.
	PublicURL string

	MaxBody    int64         // bytes of a request that appends events (4 MiB)
	MaxRunBody int64         // bytes of any other request (64 KiB)
	Timeout    time.Duration // of a request that is no stream, all of it (10 s)
	// MaxAnswers is how many bytes of runs and events the answers of the process may have that are being made or
	// received (64 MiB). A tenant may have an eighth of it; who would pass that waits, and is answered with 429 when
	// Timeout is over.
	MaxAnswers int64
	// WriteTimeout is how long a client may take to receive 64 KiB of a large answer (5 s). All of an answer has twice
	// Timeout.
	WriteTimeout time.Duration

	Version string       // in the API's description
	Logger  *slog.Logger // nil: slog.Default. A line a request: Debug for reads that succeed, Info for the others
}

func (c *Config) check() error {
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Runs == nil {
		refuse("Runs is required")
	}
	for _, o := range c.AllowedOrigins {
		switch {
		case o == "*" && c.Auth != nil:
			refuse("AllowedOrigins: * is for a server without authentication: name the origins")
		case o != "*" && !isOrigin(o):
			refuse("AllowedOrigins: %q is no origin, want scheme://host, scheme://host:port or scheme://host:*", o)
		}
	}
	c.checkPublic(refuse)
	c.PublicURL = strings.TrimSuffix(c.PublicURL, "/")
	c.setDefaults()
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("configure gateway: %w", err)
	}
	return nil
}

func (c *Config) checkPublic(refuse func(format string, args ...any)) {
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" &&
		(err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || u.RawQuery != "") {
		refuse("PublicURL is not a URL such as https://api.example.com") // not shown: it may hold what it should not
	}
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && c.Auth == nil && err == nil && !loopback(u.Hostname()) {
		refuse("PublicURL is one that other machines reach, and without Auth everybody there could do everything: set Auth")
	}
}

func (c *Config) setDefaults() {
	if c.MaxBody <= 0 {
		c.MaxBody = 4 << 20
	}
	if c.MaxRunBody <= 0 {
		c.MaxRunBody = 64 << 10
	}
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.MaxAnswers <= 0 {
		c.MaxAnswers = 64 << 20
	}
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = 5 * time.Second
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Gateway is the API. It is safe for concurrent use.
type Gateway struct {
	cfg     Config
	log     *slog.Logger
	streams *streams
	answers *answers
	api     huma.API
	handler http.Handler
}

// Handler returns the handler of the whole API.
func (g *Gateway) Handler() http.Handler { return g.handler }

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
