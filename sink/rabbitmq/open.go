package rabbitmq

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
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
)

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
// An error that waiting may cure is of class outbox.ClassUnavailable; a refused user, virtual host or certificate is of
// class outbox.ClassPermanent.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	t, err := parseURL(url)
	if err == nil && cfg.TLS != nil && t.uri.Scheme != "amqps" {
		err = errors.New("TLS is set but the URL is not amqps://")
	}
	if err != nil {
		return nil, fmt.Errorf("configure RabbitMQ sink: %w", err)
	}
	t.tls = cfg.TLS
	cfg.Binary, cfg.Watermill = cfg.Binary || t.binary, cfg.Watermill || t.watermill
	cfg.Declare, cfg.TLS = cfg.Declare || t.declare, nil
	s := newSink(t.connect, cfg)
	if err := s.ping(ctx); err != nil {
		_ = s.Close() // it has no connection, or one that does not answer
		if lasting(err) {
			err = outbox.Permanent(err)
		}
		return nil, err
	}
	return s, nil
}

// lasting tells whether an error of connecting is one that waiting does not cure.
func lasting(err error) bool {
	var certificate *tls.CertificateVerificationError
	var e *amqp.Error
	switch {
	case errors.As(err, &certificate):
		return true
	case !errors.As(err, &e):
		return false
	case e.Code == amqp.NotAllowed: // of the virtual host; a limit of connections has this code too
		return strings.Contains(e.Reason, "not found") || strings.Contains(e.Reason, "refused")
	}
	return e.Code == amqp.AccessRefused
}

// target is what a URL says.
type target struct {
	uri                        amqp.URI // of the first host
	hosts                      []string // host:port
	urls                       []string // of each host alone
	tls                        *tls.Config
	binary, watermill, declare bool
}

// What is said of a URL that cannot be used. It is not quoted, because it may hold a password.
var (
	errURL = errors.New("the RabbitMQ URL is not of the form amqp://user:password@host:5672/vhost (or amqps://); in " +
		"user, password and vhost write / ? # % @ percent-encoded. It is not shown here because it may hold a password")
	errOption = errors.New("the RabbitMQ URL has an option that is not known (it is not shown, it may be half a " +
		"password); known are " + strings.Join(options, ", "))
	errCloudEvents = errors.New("the RabbitMQ URL's option cloudevents is none of structured, binary, watermill")
	errDeclare     = errors.New("the RabbitMQ URL's option declare is not quorum")
)

// options are those of the client, and the two that are ours.
var options = []string{"cloudevents", "declare", "heartbeat", "connection_timeout", "channel_max", "auth_mechanism",
	"cacertfile", "certfile", "keyfile", "server_name_indication"}

func parseURL(text string) (t target, err error) {
	if err := sinkurl.CheckUser(text); err != nil {
		return t, err
	}
	// net/url knows one host, so further ones are taken out before.
	scheme, rest, _ := strings.Cut(text, "://")
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	user := rest[:strings.LastIndexByte(rest[:end], '@')+1]
	for name := range strings.SplitSeq(rest[len(user):end], ",") {
		one := scheme + "://" + user + name + rest[end:]
		uri, err := amqp.ParseURI(one)
		if err != nil || name == "" || uri.Port < 1 || uri.Port > 65535 {
			return t, errURL
		}
		if t.hosts == nil {
			t.uri = uri
		}
		t.hosts = append(t.hosts, net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)))
		t.urls = append(t.urls, one)
	}
	parsed, err := url.Parse(scheme + "://h" + rest[end:])
	if err != nil || parsed.Fragment != "" || strings.Contains(text, "#") {
		return t, errURL
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return t, errURL
	}
	for name := range query {
		if !slices.Contains(options, name) {
			return t, errOption
		}
	}
	switch query.Get("cloudevents") {
	case "binary":
		t.binary = true
	case "watermill":
		t.watermill = true
	case "structured", "":
	default:
		return t, errCloudEvents
	}
	switch query.Get("declare") {
	case "quorum":
		t.declare = true
	case "":
	default:
		return t, errDeclare
	}
	return t, nil
}

// connect connects to the first host that answers.
func (t target) connect(ctx context.Context) (*amqp.Connection, error) {
	var problems []error
	for i, host := range t.hosts {
		conn, err := t.connectTo(ctx, t.urls[i])
		if err == nil {
			return conn, nil
		}
		problems = append(problems, fmt.Errorf("%s: %w", host, t.hide(err)))
	}
	return nil, errors.Join(problems...)
}

func (t target) connectTo(ctx context.Context, url string) (*amqp.Connection, error) {
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
func (t target) hide(err error) error {
	if t.uri.Password != "" && t.uri.Password != "guest" && strings.Contains(err.Error(), t.uri.Password) {
		return errors.New("the server's answer contains the password and is not shown")
	}
	return err
}
