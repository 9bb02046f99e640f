package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/server/token"
)

// Config configures a Gateway. Zero means the default in parentheses.
type Config struct {
	Runs *crawl.Service // required
	Hub  *stream.Hub    // nil: no streams
	// Subscriptions are asked for events and acknowledgements. nil: there are none, and their
	// requests are answered with 501.
	Subscriptions subscription.Store
	// Auth finds out who makes a request. nil: authentication is off, everybody is
	// crawl.DefaultTenant and may do everything. Then serve on a loopback address only; requests
	// must name localhost or an IP address as their Host, and must not come through a proxy.
	Auth    *token.Authenticator
	Streams StreamConfig
	// Routes add operations of other packages, which are guarded, limited and described as the
	// gateway's own: by the scopes of their Security, and Waiting of their Metadata.
	Routes []func(huma.API)
	// RunsOnly refuses topics other than runs. It is for relays that publish bare payloads: nothing
	// tells then whose a topic's message is, nor who wrote it.
	RunsOnly bool

	// AllowedOrigins are those whose pages may call the API from a browser, such as
	// https://app.example.com (none). http://localhost:* is every port of a host. "*" is
	// everybody's, and only without authentication.
	AllowedOrigins []string
	// PublicURL is where clients reach this server, such as https://api.example.com. It begins
	// streamUrl and Location; without it they are paths.
	PublicURL string

	MaxBody    int64         // bytes of a request that appends events (4 MiB)
	MaxRunBody int64         // bytes of any other request (64 KiB)
	Timeout    time.Duration // of a request that is no stream, all of it (10 s)
	// MaxCalls limits the requests of one tenant that are in progress at a time (no limit). More
	// wait, and are answered with 429 when Timeout is over. So the requests of one tenant that are
	// stuck, for instance behind a lock, do not hold all connections of the database.
	MaxCalls int
	// MaxSubscriptions limits the subscriptions of one tenant (no limit). More get status 429.
	MaxSubscriptions int
	// MaxAnswers is how many bytes of runs and events the answers of the process may have that are
	// being made or received (64 MiB). A tenant may have an eighth of it; who would pass that
	// waits, and is answered with 429 when Timeout is over.
	MaxAnswers int64
	// WriteTimeout is how long a client may take to receive 64 KiB of a large answer (5 s). All of
	// an answer has twice Timeout.
	WriteTimeout time.Duration

	Logger *slog.Logger // nil: slog.Default. A line a request: Debug for reads that succeed, Info for the others
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
	c.Streams = c.Streams.withDefaults()
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
		refuse("PublicURL is one that other machines reach, and without Auth everybody there could do everything: " +
			"set Auth")
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
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// StreamConfig holds the settings of streams. Zero values are the defaults.
type StreamConfig struct {
	// Heartbeat is how often a comment is sent when there is nothing else, so that proxies keep the
	// connection and a dead one is noticed (15 s).
	Heartbeat time.Duration
	// WriteTimeout is how long a client may take to receive one write, of at most 16 KiB (10 s).
	// One that takes longer is cut off; it comes back with its cursor.
	WriteTimeout time.Duration
	// Retry is how long a browser waits before it connects again (1 s, up to half as much longer by
	// chance).
	Retry time.Duration
	// MaxAge is how long a connection lives before the client has to connect again, give or take a
	// fifth. So connections spread over gateways again after one was restarted (30 min).
	MaxAge time.Duration
	// DrainWindow is over how long DrainStreams spreads the ends of the connections, so that the
	// clients do not all connect again at once (5 s). Fewer than 500 take less: 10 ms each.
	DrainWindow time.Duration
	// TokenCheck is the interval between two questions to the store about the tokens of answers in
	// progress (1 s). The answers whose token is no longer valid end then: streams and all others.
	TokenCheck time.Duration
	// Connections at a time, of a run, a tenant and the process. More are answered with status 429
	// (1,000 or a fifth of the tenant's, if that is more; 5,000 and 20,000).
	MaxPerRun, MaxPerTenant, MaxConnections int
	// Topics that the streams of a tenant, and of the process, follow at a time, each counted once.
	// More are answered with status 429 (1,000 and 4,000, or a fifth of the connections, if that is
	// more). Each is a subscription at the broker, and has a memory of its last messages.
	MaxTopicsPerTenant, MaxTopicsFollowed int
	// MaxTopics is how many topics one stream may have (50).
	MaxTopics int
}

func (c StreamConfig) withDefaults() StreamConfig {
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&c.Heartbeat, 15 * time.Second}, {&c.WriteTimeout, 10 * time.Second}, {&c.Retry, time.Second},
		{&c.MaxAge, 30 * time.Minute}, {&c.DrainWindow, 5 * time.Second},
		{&c.TokenCheck, time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.zero
		}
	}
	for _, n := range []struct {
		value *int
		zero  int
	}{{&c.MaxPerTenant, 5000}, {&c.MaxConnections, 20_000}, {&c.MaxTopics, 50},
		{&c.MaxPerRun, max(1000, c.MaxPerTenant/5)}, {&c.MaxTopicsPerTenant, max(1000, c.MaxPerTenant/5)},
		{&c.MaxTopicsFollowed, max(4000, c.MaxConnections/5)}} {
		if *n.value <= 0 {
			*n.value = n.zero
		}
	}
	return c
}

// drainWindow returns over how long that many connections end.
func (c StreamConfig) drainWindow(open int) time.Duration {
	return min(c.DrainWindow, time.Duration(open)*10*time.Millisecond)
}
