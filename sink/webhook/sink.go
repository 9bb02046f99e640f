// Package webhook posts events to HTTP endpoints by Standard Webhooks 1.0: the destination is the
// name of an endpoint, which Endpoints turns into a URL and what signs for it.
//
// A request is a POST of a CloudEvent, structured or binary. It has the headers webhook-id,
// webhook-timestamp (of the attempt) and webhook-signature (one for each secret, over exactly the
// bytes that are sent). It has traceparent and tracestate if the event has them. webhook-id is the
// event id, with an underscore and the generation after an operator's replay: the same at every
// attempt.
//
// # What is guaranteed
//
//   - Delivered means that the endpoint answered with a status of 200 to 299. Redirects are not
//     followed.
//   - Events of one ordering key go out one after another (outbox.InOrder), different keys at the
//     same time, up to Endpoint.Concurrency. A request is never sent twice by itself; the next
//     attempt has the same webhook-id.
//   - An endpoint that is down, slow or full is its own failure and nobody else's. After 3 failures
//     in a row it rests, for a second at first and 5 minutes at last; then one request goes out,
//     and others once it succeeded. What is due meanwhile is postponed, as is what a 429 refused:
//     no attempt is counted.
//   - A request has all of its endpoint's Timeout: the Sink asks its relay for so much
//     (outbox.Abilities). A relay that is patient settles what takes longer when the answer comes.
//     A log table with this sink alone waits for all.
//   - Each failure asks for the wait of Config.Schedule: a relay's 5 attempts take 2 h 35 min, 10
//     take three days.
//   - An answer 410 disables the endpoint in this Sink until its entry changes, Enable is called or
//     the Sink is opened again. Its events become dead letters, with a reason that says so.
//   - An endpoint that has a tenant takes no event of another one.
//   - No request reaches an inner network: the address is checked after its name was resolved, for
//     each connection, and a refused one is not dialled. URLs are https with port 443 or 8443 and
//     without a user. Config.AllowPrivate, Allow, AllowHTTP and Ports say otherwise.
//   - No secret, header value or answer's body reaches an error or a log.
//
// # What is not
//
//   - Copies are not refused here. The receiver does so by webhook-id.
//   - That an endpoint rests, or is disabled, is known to one Sink and not to other processes.
//   - A network that is down for all endpoints looks like many endpoints that are down: attempts
//     are counted.
//   - With a proxy, it is the proxy that must refuse inner networks.
//
// # What it needs
//
// Endpoints that verify signatures by Standard Webhooks, and answer soon: what takes long they do
// afterwards.
package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

// Config configures a Sink. Zero means the default in parentheses.
type Config struct {
	// Envelope builds the body of a table that has none of its own (outbox.CloudEvent).
	Envelope outbox.Envelope
	// Binary sends CloudEvents in binary mode: attributes as ce- headers, the payload as the body.
	Binary bool

	// AllowPrivate allows every address and, without Ports, every port: for tests, and endpoints
	// that are one's own.
	AllowPrivate bool
	// Allow allows these inner networks, and no others.
	Allow []netip.Prefix
	// AllowHTTP allows http:// beside https://.
	AllowHTTP bool
	// Ports are those that may be dialled (443 and 8443; with AllowHTTP also 80 and 8080).
	Ports []uint16
	// TLS replaces the system's certificate authorities.
	TLS *tls.Config
	// Proxy makes all requests (none; the environment's is not used). No address is checked then.
	Proxy *url.URL
	// Resolver resolves the names of hosts (the system's).
	Resolver *net.Resolver

	// Schedule is how long to wait at least after the first, second, … failed attempt of an event,
	// ± 10 %. The last one goes on (Standard Webhooks' example: 5 s, 5 min, 30 min, 2 h, 5 h, 10 h,
	// 14 h, 20 h, 24 h).
	Schedule []time.Duration
	// Logger is told of endpoints that are disabled and files that cannot be read (slog.Default).
	Logger *slog.Logger
}

// withDefaults also reports what New cannot use.
func (c Config) withDefaults() (Config, error) {
	var problems []error
	refuse := func(wrong bool, problem string) {
		if wrong {
			problems = append(problems, errors.New(problem))
		}
	}
	refuse(c.Proxy != nil && (c.Proxy.Host == "" || c.Proxy.Scheme != "http" && c.Proxy.Scheme != "https"),
		"Proxy is not of the form http://host:port")
	refuse(slices.Contains(c.Ports, 0), "Ports has 0, must be 1 to 65535")
	refuse(slices.ContainsFunc(c.Allow, func(p netip.Prefix) bool { return !p.IsValid() }),
		"Allow has a network that is not valid")
	refuse(slices.ContainsFunc(c.Schedule, func(wait time.Duration) bool { return wait <= 0 }),
		"Schedule has a wait that is not positive")
	refuse(c.Schedule != nil && len(c.Schedule) == 0, "Schedule is empty")
	if c.Envelope == nil {
		c.Envelope = outbox.CloudEvent
	}
	if c.Schedule == nil {
		c.Schedule = schedule
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Ports == nil && !c.AllowPrivate {
		if c.Ports = []uint16{443, 8443}; c.AllowHTTP {
			c.Ports = append(c.Ports, 80, 8080)
		}
	}
	return c, errors.Join(problems...)
}

// schedule is the example of Standard Webhooks 1.0.0, "Deliverability and reliability".
var schedule = []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour}

// Sink posts to endpoints. It asks for as long a batch as its slowest endpoint may take.
//
// Its Ping asks whether the endpoints are known. It sends nothing to any of them: one that is down
// is not the sink's state.
type Sink struct {
	cfg       Config
	endpoints Endpoints
	list      lister // endpoints, or nil
	transport *http.Transport

	under sync.WaitGroup // requests that a batch may not wait for

	mu     sync.Mutex
	states map[string]*state // of the endpoints that were used, by name
}

// New returns a Sink that posts to these endpoints. It talks to nobody. All problems of cfg and of
// the endpoints of a List are reported at once.
func New(endpoints Endpoints, cfg Config) (*Sink, error) {
	cfg, err := cfg.withDefaults()
	if endpoints == nil {
		err = errors.Join(err, errors.New("endpoints is nil"))
	}
	if list, ok := endpoints.(List); ok {
		err = errors.Join(err, list.check(cfg))
	}
	if err != nil {
		return nil, fmt.Errorf("configure webhook sink: %w", err)
	}
	s := &Sink{cfg: cfg, endpoints: endpoints, transport: newTransport(cfg), states: map[string]*state{}}
	s.list, _ = endpoints.(lister)
	return s, nil
}

// Abilities implements outbox.Able.
func (s *Sink) Abilities() outbox.Abilities {
	return outbox.Abilities{Ping: s.ping, Timeout: s.timeout, Subscriptions: s.subscriptions}
}

func (s *Sink) ping(ctx context.Context) error {
	_, err := s.endpoints.Lookup(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("look up webhook endpoints: %w", err)
	case s.list != nil:
		err = s.list.failure()
	}
	if err != nil {
		return outbox.Unavailable(err)
	}
	return nil
}

// timeout is outbox.Abilities.Timeout: it has room for the longest timeout of the endpoints.
func (s *Sink) timeout() time.Duration {
	longest := defaultTimeout
	if s.list != nil {
		longest = s.list.longest()
	}
	return (beginTime + longest) * 20 / 19
}

// subscriptions returns the subscriptions to events whose destination is "*". Events for a disabled
// endpoint become dead letters, as if they named it.
func (s *Sink) subscriptions(context.Context) ([]outbox.Subscription, error) {
	if s.list == nil {
		return nil, errors.New("list subscriptions: these endpoints can only be looked up by name")
	}
	all := []outbox.Subscription{}
	for _, e := range s.list.all() {
		all = append(all, e.subscriptions()...)
	}
	return all, nil
}

// Close waits for what is under way, which ends with the context of its Publish, and closes idle
// connections.
func (s *Sink) Close() error {
	s.under.Wait()
	s.transport.CloseIdleConnections()
	return nil
}

// Enable has an endpoint asked again that answered 410, or rests.
func (s *Sink) Enable(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.states, name)
}

// Disabled tells which endpoints answered 410, and when.
func (s *Sink) Disabled() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]time.Time{}
	for name, one := range s.states {
		one.mu.Lock()
		if !one.gone.IsZero() {
			found[name] = one.gone
		}
		one.mu.Unlock()
	}
	return found
}
