package natsjs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes:   []string{family.Plain, family.Secure},
		Example:   "nats://user:password@host:4222 for JetStream, tls:// for TLS",
		Variables: []string{"NATS_URL"},
		Open: func(ctx context.Context, url string, o sink.Options) (sink.Sink, error) {
			return Open(ctx, url, Config{Window: o.Window})
		},
		Check: func(url string) error {
			_, err := parse(url, &Config{})
			return err
		},
		// A server that demands TLS gets it from a nats:// URL too, but nobody who stands between
		// would. Not Encrypted: a server greets before TLS begins.
		Plaintext: family.Plaintext, Hint: hint,
	}
}

func hint(err error) string {
	switch {
	case refusedUser(err):
		return "correct user, password, token or credentials file in the URL"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server has no TLS: set it up there, or write nats:// in the URL"
	case strings.Contains(err.Error(), "connect to NATS"):
		return "is a NATS server running there?"
	}
	return ""
}

// refusedUser tells whether the server knows the user or its password not, or no longer.
func refusedUser(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// Open connects to the NATS that url names and returns a Sink that Close closes:
//
//	nats://user:password@host:4222            a server
//	nats://token@host                         with a token for a user
//	tls://…                                   the same with TLS
//	nats://user:password@host1,host2:4222     servers of a cluster, of which any will do
//
// Query parameters: cloudevents=binary for binary mode (structured), creds=FILE with the user's JWT
// and key. For a stream to be made if there is none of its name: create=NAME,
// subjects=orders.>,invoices.> and replicas=3 (1).
//
// A server that cannot be reached is an error of class outbox.ClassUnavailable. One that refuses
// the user, has no TLS, or for which nobody vouches, is one of class outbox.ClassPermanent.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	t, err := parse(url, &cfg)
	if err != nil {
		return nil, fmt.Errorf("configure NATS sink: %w", err)
	}
	s := &Sink{cfg: cfg, target: t, dialling: make(chan struct{}, 1)}
	l, err := s.connected(ctx)
	if err != nil {
		return nil, sinkurl.Failed(err, refusedUser(err) || errors.Is(err, nats.ErrSecureConnWanted))
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

var family = sinkurl.Family{Name: "NATS", Form: "nats://user:password@host:4222 (or tls://)",
	Plain: "nats", Secure: "tls", Port: "4222"}

// target is where to connect.
type target struct {
	*sinkurl.URL
	known       []string // URLs of further servers, as the last one told; see link.go
	tls         *tls.Config
	credentials string // file
}

// parse reads a URL, whose options win over cfg, and completes cfg.
func parse(text string, cfg *Config) (*target, error) {
	u, err := family.Parse(text)
	if err != nil {
		return nil, err
	}
	t := &target{URL: u, tls: cfg.TLS}
	var stream Stream
	problems := []error{u.Take(
		sinkurl.CloudEvents(&cfg.Binary, &cfg.Watermill), sinkurl.Text("create", &stream.Name),
		sinkurl.Text("creds", &t.credentials), sinkurl.Number("replicas", &stream.Replicas, 1, 5),
		sinkurl.Option{Name: "subjects", Takes: "subjects, apart by commas", Set: func(value string) bool {
			stream.Subjects = strings.Split(value, ",")
			return true
		}})}
	if err := stream.check(); err != nil {
		problems = append(problems, fmt.Errorf("the URL's options create, subjects and replicas: %w", err))
	}
	if stream.Name != "" {
		cfg.Create = stream
	}
	if t.credentials != "" && u.Account != nil {
		problems = append(problems, errors.New("the URL has both a user and creds: one of them says who connects"))
	}
	*cfg, err = cfg.withDefaults()
	return t, errors.Join(append(problems, u.CheckTLS(t.tls), err)...)
}

// String names the hosts, for errors.
func (t *target) String() string { return strings.Join(t.Hosts, ",") }

// urls are what the client is given to try.
func (t *target) urls() string {
	var all []string
	for _, host := range t.Hosts {
		all = append(all, t.Scheme+"://"+host)
	}
	return strings.Join(append(all, t.known...), ",")
}

// auth are the options that say who connects.
func (t *target) auth() (options []nats.Option) {
	if t.credentials != "" {
		options = append(options, nats.UserCredentials(t.credentials))
	}
	if t.Account != nil {
		if password, ok := t.Account.Password(); ok {
			options = append(options, nats.UserInfo(t.Account.Username(), password))
		} else {
			options = append(options, nats.Token(t.Account.Username()))
		}
	}
	if t.Secure {
		options = append(options, nats.Secure(t.tls))
	}
	return options
}

// hide replaces an error that quotes the password or token.
func (t *target) hide(err error) error { return sinkurl.Hide(err, t.Secret()) }
