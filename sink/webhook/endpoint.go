package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
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
	// Topics and Types are what it subscribes to: of the events whose destination is "*", and that are of its tenant, it
	// gets those that fit one of each. They are names, or patterns in which * stands for any text. One that is empty
	// fits everything (both: it subscribes to nothing).
	Topics []string
	Types  []string // of aggregates
	URL    string
	// Secrets sign, each for itself, so that a receiver can be moved from one to the next. They are whsec_ and 24 to 64
	// bytes in base64 for HMAC-SHA256, or whsk_ and a private key in base64 (its seed, or seed and public key) for
	// ed25519.
	Secrets []Secret
	Headers map[string]Secret // further ones of each request

	Timeout     time.Duration // for one request (15 s, 2 min at most)
	Concurrency int           // requests at the same time (64)
	Rate        float64       // requests a second, at least 1 (no limit)
	Disabled    bool          // its events fail for good

	stored stored
}

// stored is what is known of an endpoint in a table beside what others have.
type stored struct {
	revision int64
	why      string // it is disabled
	defect   string // why it cannot be used by this process; its events wait
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
			all = append(all, outbox.Subscription{Destination: e.Name, Topic: topic, Tenant: e.Tenant, AggregateType: of})
		}
	}
	return all
}

// subscriptions are those of all endpoints. The events for a disabled one become dead letters, as those that name it.
func (l List) subscriptions(context.Context) ([]outbox.Subscription, error) {
	all := []outbox.Subscription{}
	for i := range l {
		all = append(all, l[i].subscriptions()...)
	}
	return all, nil
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
	// Lookup returns those of the named endpoints that there are. It is called once a batch, with each name once, and
	// with no name to see whether it works. An error says that nothing can be known now: no event pays for it.
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

// longest is the longest timeout of the endpoints that are in use.
func (l List) longest() (timeout time.Duration) {
	for _, e := range l {
		if !e.Disabled {
			timeout = max(timeout, orDefault(e.Timeout, defaultTimeout))
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
	t := &target{Endpoint: e}
	var problems []error
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("endpoint %q: "+format, append([]any{e.Name}, args...)...))
	}
	var err error
	if t.url, err = parseURL(e.URL, cfg); err != nil {
		add("%w", err)
	}
	if len(e.Secrets) == 0 {
		add("it has no secret to sign with: give it %s followed by the output of openssl rand -base64 32", symmetric)
	}
	for i, secret := range e.Secrets {
		sign, err := newSigner(string(secret))
		if err != nil {
			add("secret %d %w", i+1, err)
		}
		t.signers = append(t.signers, sign)
	}
	if slices.Contains(append(slices.Clone(e.Topics), e.Types...), "") {
		add("topics and types are names or patterns such as order.*, one of them is empty")
	}
	if e.Name == everyone {
		add("the name %s is that of all who subscribe", everyone)
	}
	for name, value := range e.Headers {
		if err := checkHeader(name, string(value)); err != nil {
			add("header %q %w", name, err)
		}
	}
	t.checkBounds(add)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return t, nil
}

// checkBounds sets what is zero, and reports what is out of bounds.
func (t *target) checkBounds(add func(format string, args ...any)) {
	e := t.Endpoint // as it was given
	if t.Timeout == 0 {
		t.Timeout = defaultTimeout
	}
	if t.Concurrency == 0 {
		t.Concurrency = defaultConcurrency
	}
	if t.Timeout < time.Millisecond || t.Timeout > maxTimeout {
		add("timeout is %s, must be 1ms to %s", e.Timeout, maxTimeout)
	}
	if t.Concurrency < 0 || t.Concurrency > maxConcurrency {
		add("concurrency is %d, must be 1 to %d", e.Concurrency, maxConcurrency)
	}
	if !(t.Rate == 0 || t.Rate >= 1 && t.Rate <= 1e6) {
		add("rate is %g a second, must be at least 1, or 0 for no limit", e.Rate)
	}
}

// same tells whether an endpoint is still what the target was made of.
func (t *target) same(e Endpoint) bool {
	e.Timeout = orDefault(e.Timeout, defaultTimeout)
	e.Concurrency = orDefault(e.Concurrency, defaultConcurrency)
	return reflect.DeepEqual(t.Endpoint, e)
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// parseURL does not quote the URL in its errors: its user, path and query may hold a secret.
func parseURL(text string, cfg Config) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Hostname() == "" {
		return nil, errors.New("the URL is not of the form https://host/path")
	}
	var problems []error
	switch u.Scheme {
	case "https":
	case "http":
		if !cfg.AllowHTTP {
			problems = append(problems, errors.New("the URL is http, must be https (allow=http in the sink's URL)"))
		}
	default:
		problems = append(problems, errors.New("the URL is neither https nor http"))
	}
	if u.User != nil {
		problems = append(problems, errors.New("the URL has a user: write it as a header Authorization"))
	}
	if strings.Contains(text, "#") {
		problems = append(problems, errors.New("the URL has a fragment, which is never sent"))
	}
	return u, errors.Join(append(problems, checkPort(u, cfg))...)
}

func checkPort(u *url.URL, cfg Config) error {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	if port == "" {
		return nil // it is said that the scheme is none of them
	}
	number, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || number == 0:
		return errors.New("the port of the URL is none of 1 to 65535")
	case cfg.Ports != nil && !slices.Contains(cfg.Ports, uint16(number)):
		return fmt.Errorf("port %d of the URL is not allowed (ports=%d in the sink's URL allows it alone)", number, number)
	}
	return nil
}

// ours are headers that a request has anyway. The two of idempotency would make net/http send a request again by
// itself when the answer was lost.
var ours = []string{"Host", "Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection",
	"Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade", "Expect", "Traceparent", "Tracestate", "User-Agent",
	"Idempotency-Key", "X-Idempotency-Key", "Proxy-Authorization"}

func checkHeader(name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return !isToken(c) }):
		return errors.New("has a name that no header can have")
	case slices.Contains(ours, canonical), strings.HasPrefix(canonical, "Webhook-"), strings.HasPrefix(canonical, "Ce-"):
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

// maskedURL is the URL without user, query and fragment.
func (e Endpoint) maskedURL() string {
	u, err := url.Parse(e.URL)
	if err != nil || u.Opaque != "" {
		return "(no valid URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
