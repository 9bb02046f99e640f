package natsjs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
)

// Open connects to the NATS that url names and returns a Sink that Close closes:
//
//	nats://user:password@host:4222            a server
//	nats://token@host                         with a token for a user
//	tls://…                                   the same with TLS
//	nats://user:password@host1,host2:4222     servers of a cluster, of which any will do
//
// Query parameters: cloudevents=binary for binary mode (structured), creds=FILE with the user's JWT and key. For a
// stream to be made if there is none of its name: create=NAME, subjects=orders.>,invoices.> and replicas=3 (1). A
// server that cannot be reached or refuses the user is an error of class outbox.ClassUnavailable.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	t, urlErr := parseURL(url)
	if urlErr == nil {
		urlErr = t.configure(&cfg)
	}
	cfg, err := cfg.withDefaults()
	if err := errors.Join(err, urlErr); err != nil {
		return nil, fmt.Errorf("configure NATS sink: %w", err)
	}
	s := newSink(cfg)
	s.target = t
	l, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	if err := create(ctx, l.js, cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// create makes the stream of cfg, unless there is one of its name: that is its owner's business.
func create(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	if cfg.Create.Name == "" {
		return nil
	}
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: cfg.Create.Name, Subjects: cfg.Create.Subjects, Storage: jetstream.FileStorage,
		Replicas: max(cfg.Create.Replicas, 1), Duplicates: max(cfg.Window, 0),
	})
	if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil
	}
	err = fmt.Errorf("create stream %s for %s: %w", cfg.Create.Name, strings.Join(cfg.Create.Subjects, ", "), err)
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.Code < 500 {
		return outbox.Permanent(err)
	}
	return outbox.Unavailable(err)
}

// target is where to connect, and what the URL asks for besides.
type target struct {
	hosts       []string // host:port
	known       []string // URLs of further servers, as the last one told; see link.go
	secure      bool
	tls         *tls.Config
	user        *url.Userinfo
	credentials string // file
	options     url.Values
}

// errURL is all that is said of a URL that cannot be parsed: net/url quotes it, and a password with an unescaped slash
// turns up as port or path.
var errURL = errors.New("the NATS URL is not of the form nats://user:password@host:4222 (or tls://); in user and " +
	"password write / ? # % @ percent-encoded. It is not shown here because it may hold a password")

func parseURL(text string) (*target, error) {
	if err := sinkurl.CheckUser(text); err != nil {
		return nil, err
	}
	// net/url knows one host, so all are taken out before.
	scheme, rest, _ := strings.Cut(text, "://")
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	user := rest[:strings.LastIndexByte(rest[:end], '@')+1]
	parsed, err := url.Parse("nats://" + user + "host" + rest[end:])
	scheme = strings.ToLower(scheme)
	if err != nil || parsed.Path != "" && parsed.Path != "/" || strings.Contains(text, "#") ||
		scheme != "nats" && scheme != "tls" {
		return nil, errURL
	}
	t := &target{secure: scheme == "tls", user: parsed.User}
	for name := range strings.SplitSeq(rest[len(user):end], ",") {
		host, err := parseHost(name)
		if err != nil {
			return nil, err
		}
		t.hosts = append(t.hosts, host)
	}
	if t.options, err = url.ParseQuery(parsed.RawQuery); err != nil {
		return nil, errURL
	}
	return t, t.checkOptions()
}

func parseHost(name string) (string, error) {
	parsed, err := url.Parse("nats://" + name)
	if err != nil || parsed.Hostname() == "" || parsed.User != nil {
		return "", errURL
	}
	port := parsed.Port()
	if port == "" {
		port = "4222"
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("a port in the URL is none of 1 to 65535 (not shown, it may hold a password)")
	}
	return net.JoinHostPort(parsed.Hostname(), port), nil
}

var knownOptions = []string{"cloudevents", "create", "creds", "replicas", "subjects"}

func (t *target) checkOptions() error {
	var problems []error
	for name, values := range t.options {
		switch {
		case !slices.Contains(knownOptions, name):
			problems = append(problems, fmt.Errorf("the URL has an option that is none of %s (not shown, it may hold a "+
				"password)", strings.Join(knownOptions, ", ")))
		case len(values) > 1:
			problems = append(problems, fmt.Errorf("the URL has the option %s twice", name))
		}
	}
	if mode := t.options.Get("cloudevents"); !slices.Contains([]string{"", "structured", "binary", "watermill"}, mode) {
		problems = append(problems, errors.New("the URL's option cloudevents is none of structured, binary, watermill"))
	}
	if text := t.options.Get("replicas"); text != "" {
		if n, err := strconv.Atoi(text); err != nil || n < 1 || n > 5 {
			problems = append(problems, errors.New("the URL's option replicas is none of 1 to 5"))
		}
	}
	if err := t.stream().check(); err != nil {
		problems = append(problems, fmt.Errorf("the URL's options create, subjects and replicas: %w", err))
	}
	t.credentials = t.options.Get("creds")
	if t.credentials != "" && t.user != nil {
		problems = append(problems, errors.New("the URL has both a user and creds: one of them says who connects"))
	}
	return errors.Join(problems...)
}

// stream is the one that the URL wants made.
func (t *target) stream() Stream {
	s := Stream{Name: t.options.Get("create")}
	if subjects := t.options.Get("subjects"); subjects != "" {
		s.Subjects = strings.Split(subjects, ",")
	}
	s.Replicas, _ = strconv.Atoi(t.options.Get("replicas")) // was checked
	return s
}

// configure has the URL's options win over those of cfg, and takes from cfg what connecting needs.
func (t *target) configure(cfg *Config) error {
	if mode := t.options.Get("cloudevents"); mode != "" {
		cfg.Binary, cfg.Watermill = mode == "binary", mode == "watermill"
	}
	if s := t.stream(); s.Name != "" {
		cfg.Create = s
	}
	if cfg.TLS != nil && !t.secure {
		return errors.New("TLS is set but the URL is not tls://")
	}
	t.tls = cfg.TLS
	return nil
}

// String names the hosts, for errors.
func (t *target) String() string { return strings.Join(t.hosts, ",") }

// urls are what the client is given to try.
func (t *target) urls() string {
	scheme := "nats://"
	if t.secure {
		scheme = "tls://"
	}
	var all []string
	for _, host := range t.hosts {
		all = append(all, scheme+host)
	}
	return strings.Join(append(all, t.known...), ",")
}

// auth are the options that say who connects.
func (t *target) auth() (options []nats.Option) {
	if t.credentials != "" {
		options = append(options, nats.UserCredentials(t.credentials))
	}
	if t.user != nil {
		if password, ok := t.user.Password(); ok {
			options = append(options, nats.UserInfo(t.user.Username(), password))
		} else {
			options = append(options, nats.Token(t.user.Username()))
		}
	}
	if t.secure {
		options = append(options, nats.Secure(t.tls))
	}
	return options
}

// hide replaces an error that quotes the password or token.
func (t *target) hide(err error) error {
	if t.user == nil {
		return err
	}
	secret, ok := t.user.Password()
	if !ok {
		secret = t.user.Username()
	}
	if secret != "" && strings.Contains(err.Error(), secret) {
		return errors.New("the server's answer contains the password and is not shown")
	}
	return err
}
