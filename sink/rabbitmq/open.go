package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes:   []string{family.Plain, family.Secure},
		System:    "rabbitmq",
		Example:   "amqp://user:password@host:5672/vhost for RabbitMQ, amqps:// for TLS",
		Variables: []string{"CLOUDAMQP_URL", "RABBITMQ_URL"},
		Open: func(ctx context.Context, url string, _ sink.Options) (sink.Sink, error) {
			return Open(ctx, url, Config{})
		},
		Check: func(url string) error {
			_, err := parse(url, &Config{})
			return err
		},
		Plaintext: family.Plaintext, Encrypted: family.Encrypted, Hint: hint,
	}
}

func hint(err error) string {
	var e *amqp.Error
	switch {
	case errors.As(err, &e) && (e.Code == amqp.AccessRefused || e.Code == amqp.NotAllowed):
		return "correct user, password or virtual host in the URL, or the user's rights (rabbitmqctl set_permissions)"
	case strings.Contains(err.Error(), "connect to RabbitMQ"):
		return "is RabbitMQ running there?"
	}
	return ""
}

// connectLimit bounds one attempt to connect, until the server has agreed to everything. The option
// connection_timeout, in milliseconds, is another.
const connectLimit = 5 * time.Second

// Open connects to the RabbitMQ that url names and returns a Sink that Close closes:
//
//	amqp://user:password@host:5672/vhost
//	amqps://…                                 the same with TLS
//	amqp://user:password@host1,host2:5673/    nodes of a cluster, tried in their order
//
// Without a virtual host it is the one called "/", whose name in a URL is %2F. Options of the URL:
//
//	cloudevents=binary        as Config.Binary; watermill likewise, structured is the default
//	declare=quorum            as Config.Declare
//	heartbeat=10              seconds between signs of life, cacertfile, certfile, keyfile, server_name_indication,
//	                          auth_mechanism, connection_timeout, channel_max: RabbitMQ's own
//
// An error that waiting may cure is of class outbox.ClassUnavailable; a refused user, virtual host
// or certificate is of class outbox.ClassPermanent.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	t, err := parse(url, &cfg)
	if err != nil {
		return nil, fmt.Errorf("configure RabbitMQ sink: %w", err)
	}
	cfg.TLS = nil
	s := newSink(t.connect, cfg)
	if err := s.ping(ctx); err != nil {
		_ = s.Close() // it has no connection, or one that does not answer
		return nil, sinkurl.Failed(err, refused(err))
	}
	return s, nil
}

// refused tells whether the server knows the user, or the virtual host, not.
func refused(err error) bool {
	var e *amqp.Error
	switch {
	case !errors.As(err, &e):
		return false
	case e.Code == amqp.NotAllowed: // of the virtual host; a limit of connections has this code too
		return strings.Contains(e.Reason, "not found") || strings.Contains(e.Reason, "refused")
	}
	return e.Code == amqp.AccessRefused
}

// family has as Others the options of the client.
var family = sinkurl.Family{Name: "RabbitMQ", Form: "amqp://user:password@host:5672/vhost (or amqps://)",
	Plain: "amqp", Secure: "amqps", Port: "5672", SecurePort: "5671", Path: true,
	Others: []string{"heartbeat", "connection_timeout", "channel_max", "auth_mechanism", "cacertfile", "certfile",
		"keyfile", "server_name_indication"}}

// target is what a URL says.
type target struct {
	*sinkurl.URL
	uri amqp.URI // of the first host
	tls *tls.Config
}

// parse reads a URL, whose options win over cfg.
func parse(text string, cfg *Config) (*target, error) {
	u, err := family.Parse(text)
	if err != nil {
		return nil, err
	}
	t := &target{URL: u, tls: cfg.TLS}
	problems := []error{u.Take(sinkurl.CloudEvents(&cfg.Binary, &cfg.Watermill),
		sinkurl.OneOf("declare", []string{"quorum"}, func(string) { cfg.Declare = true }))}
	if t.uri, err = amqp.ParseURI(u.One(u.Hosts[0])); err != nil {
		problems = append(problems, errClient)
	}
	return t, errors.Join(append(problems, u.CheckTLS(t.tls))...)
}

// errClient says nothing of the URL, because it may hold a password.
var errClient = errors.New("the RabbitMQ URL's virtual host, or one of the options of the client, cannot be read " +
	"(not shown, it may hold a password)")

// connect connects to the first host that answers.
func (t *target) connect(ctx context.Context) (*amqp.Connection, error) {
	var problems []error
	for _, host := range t.Hosts {
		conn, err := t.connectTo(ctx, t.One(host))
		if err == nil {
			return conn, nil
		}
		problems = append(problems, fmt.Errorf("%s: %w", host, t.hide(err)))
	}
	return nil, errors.Join(problems...)
}

func (t *target) connectTo(ctx context.Context, url string) (*amqp.Connection, error) {
	limit := connectLimit
	if t.uri.ConnectionTimeout > 0 {
		limit = time.Duration(t.uri.ConnectionTimeout) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	over := func() bool { return true }
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("outbox")
	conn, err := amqp.DialConfig(url, amqp.Config{
		Properties: properties, TLSClientConfig: t.tls.Clone(), // the client writes to it

		Dial: func(network, host string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, host)
			if err == nil { // ctx is for the handshake too
				over = context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		},
	})
	if !over() { // closed, or about to be
		return nil, errors.Join(ctx.Err(), err)
	}
	return conn, err
}

// hide replaces an error that quotes the password.
func (t *target) hide(err error) error { return sinkurl.Hide(err, t.Secret()) }
