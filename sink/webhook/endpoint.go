package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// Endpoint is where webhooks are posted. Zero means the default in parentheses.
type Endpoint struct {
	Name   string // the destination of events
	Tenant string // takes the events of this tenant only, others fail for good (all tenants)
	// Topics and Types are what it subscribes to: of the events whose destination is "*" it gets
	// those of its tenant that fit one of each. They are names, or patterns in which * stands for
	// any text. One that is empty fits everything (both: it subscribes to nothing).
	Topics []string
	Types  []string // of aggregates
	URL    string
	// Secrets sign, each for itself, so that a receiver can be moved from one to the next. They are
	// whsec_ and 24 to 64 bytes in base64 for HMAC-SHA256, or whsk_ and a private key in base64
	// (its seed, or seed and public key) for ed25519.
	Secrets []Secret
	Headers map[string]Secret // further ones of each request

	Timeout     time.Duration // for one request (15 s, 2 min at most)
	Concurrency int           // requests at the same time (64)
	Rate        float64       // requests a second, at least 1 (no limit)
	Disabled    bool          // its events fail for good
}

// everyone is the destination of events for all who subscribe.
const everyone = "*"

// subscriptions are what an endpoint subscribes to, as the conditions of routes.
func (e *Endpoint) subscriptions() (all []outbox.Subscription) {
	topics, types := e.Topics, e.Types
	switch {
	case len(topics)+len(types) == 0:
		return nil
	case len(topics) == 0:
		topics = []string{""}
	case len(types) == 0:
		types = []string{""}
	}
	for _, topic := range topics {
		for _, of := range types {
			all = append(all, outbox.Subscription{
				Destination: e.Name, Topic: topic, Tenant: e.Tenant, AggregateType: of})
		}
	}
	return all
}

// Secret is a text that no formatting shows.
type Secret string

const hidden = "(secret)"

// Format hides the secret.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Endpoints knows the endpoints by their names. It is safe for concurrent use.
type Endpoints interface {
	// Lookup returns those of the named endpoints that there are. It is called once a batch, with
	// each name once, and with no name to see whether it works. An error says that nothing can be
	// known now: no event pays for it.
	Lookup(ctx context.Context, names ...string) (map[string]Endpoint, error)
}

// List is Endpoints in code.
type List []Endpoint

// Lookup implements Endpoints.
func (l List) Lookup(_ context.Context, names ...string) (map[string]Endpoint, error) {
	found := map[string]Endpoint{}
	for _, e := range l {
		if slices.Contains(names, e.Name) {
			found[e.Name] = e
		}
	}
	return found, nil
}

// lister is Endpoints that can be listed: a List or a file.
type lister interface {
	all() List
	longest() time.Duration
	failure() error
}

func (l List) all() List { return l }

func (l List) failure() error { return nil }

// longest is the longest timeout of the endpoints that are in use.
func (l List) longest() (timeout time.Duration) {
	for _, e := range l {
		if !e.Disabled {
			timeout = max(timeout, cmp.Or(e.Timeout, defaultTimeout))
		}
	}
	return timeout
}

// check finds what is wrong with the endpoints, for New.
func (l List) check(cfg Config) error {
	var problems []error
	known := map[string]bool{}
	for i, e := range l {
		if e.Name == "" {
			problems = append(problems, fmt.Errorf("endpoint %d has no name", i+1))
			continue
		}
		if known[e.Name] {
			problems = append(problems, fmt.Errorf("endpoint %q is there twice", e.Name))
		}
		known[e.Name] = true
		if _, err := newTarget(e, cfg); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// target is an Endpoint made ready.
type target struct {
	Endpoint
	given   Endpoint // as it was before zero became the default
	url     *url.URL
	signers []signer
}

const (
	defaultTimeout     = 15 * time.Second
	maxTimeout         = 2 * time.Minute // a batch lasts as long
	defaultConcurrency = 64
	maxConcurrency     = 1000
)

// newTarget checks an endpoint. All problems are reported at once; none shows a secret, or the URL.
func newTarget(e Endpoint, cfg Config) (*target, error) {
	t := &target{Endpoint: e, given: e}
	t.Timeout, t.Concurrency = cmp.Or(e.Timeout, defaultTimeout), cmp.Or(e.Concurrency, defaultConcurrency)
	var problems []error
	check := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf("endpoint %q: "+format, append([]any{e.Name}, args...)...))
		}
	}
	var err error
	t.url, err = parseURL(e.URL, cfg)
	check(err != nil, "%w", err)
	check(len(e.Secrets) == 0,
		"it has no secret to sign with: give it %s followed by the output of openssl rand -base64 32", symmetric)
	for i, secret := range e.Secrets {
		sign, err := newSigner(string(secret))
		check(err != nil, "secret %d %w", i+1, err)
		t.signers = append(t.signers, sign)
	}
	check(slices.Contains(slices.Concat(e.Topics, e.Types), ""),
		"topics and types are names or patterns such as order.*, one of them is empty")
	check(e.Name == everyone, "the name %s is that of all who subscribe", everyone)
	for name, value := range e.Headers {
		err := checkHeader(name, string(value))
		check(err != nil, "header %q %w", name, err)
	}
	check(t.Timeout < time.Millisecond || t.Timeout > maxTimeout,
		"timeout is %s, must be 1ms to %s", e.Timeout, maxTimeout)
	check(t.Concurrency < 0 || t.Concurrency > maxConcurrency,
		"concurrency is %d, must be 1 to %d", e.Concurrency, maxConcurrency)
	check(!(e.Rate == 0 || e.Rate >= 1 && e.Rate <= 1e6),
		"rate is %g a second, must be at least 1, or 0 for no limit", e.Rate)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return t, nil
}

// parseURL does not quote the URL in its errors: its user, path and query may hold a secret.
func parseURL(text string, cfg Config) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Hostname() == "" {
		return nil, errors.New("the URL is not of the form https://host/path")
	}
	var problems []error
	check := func(wrong bool, problem string) {
		if wrong {
			problems = append(problems, errors.New(problem))
		}
	}
	check(u.Scheme != "https" && u.Scheme != "http", "the URL is neither https nor http")
	check(u.Scheme == "http" && !cfg.AllowHTTP, "the URL is http, must be https (allow=http in the sink's URL)")
	check(u.User != nil, "the URL has a user: write it as a header Authorization")
	check(strings.Contains(text, "#"), "the URL has a fragment, which is never sent")
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme], "443")
	number, err := strconv.ParseUint(port, 10, 16)
	check(err != nil || number == 0, "the port of the URL is none of 1 to 65535")
	check(cfg.Ports != nil && !slices.Contains(cfg.Ports, uint16(number)),
		fmt.Sprintf("port %s of the URL is not allowed (ports=%s in the sink's URL allows it alone)", port, port))
	return u, errors.Join(problems...)
}

// ours are headers that a request has anyway. The two of idempotency would make net/http send a
// request again by itself when the answer was lost.
var ours = []string{"Host", "Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection",
	"Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade", "Expect", "Traceparent", "Tracestate", "User-Agent",
	"Idempotency-Key", "X-Idempotency-Key", "Proxy-Authorization"}

func checkHeader(name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return !isToken(c) }):
		return errors.New("has a name that no header can have")
	case slices.Contains(ours, canonical),
		strings.HasPrefix(canonical, "Webhook-"), strings.HasPrefix(canonical, "Ce-"):
		return errors.New("is one that the sink sets itself")
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return errors.New("has a line break or another control character in its value")
	}
	return nil
}

// isToken tells whether a character can be in the name of a header (RFC 9110, section 5.6.2).
func isToken(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
