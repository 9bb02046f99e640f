package kafka

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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outboxrelay/outbox"
)

const (
	schemePlain = "kafka"
	schemeTLS   = "kafkas"
	defaultPort = "9092"
)

// Open connects to the cluster that a URL names and returns a Sink that Close closes:
//
//	kafka://host1:9092,host2:9092                            some brokers of a cluster; the others are found
//	kafkas://user:password@host:9093?sasl=scram-sha-512      with TLS and SASL
//
// Options: sasl=plain (the default for a URL with a user), scram-sha-256 or scram-sha-512; cloudevents=structured (the
// default), binary or watermill; create=partitions:replication, compression, transactional_id and max_message_bytes as
// Config has them. They win over cfg. A cluster that cannot be reached, or refuses the user, is an error of class
// outbox.ClassUnavailable.
func Open(ctx context.Context, address string, cfg Config) (*Sink, error) {
	a, err := parseURL(address)
	if err == nil {
		cfg, err = a.configure(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("configure Kafka sink: %w", err)
	}
	s, err := newPublisher(cfg, a.options()...)
	if err != nil {
		return nil, err
	}
	s.password = secret(a.password)
	err = s.current().client.Ping(ctx)
	if err == nil && cfg.TransactionalID != "" {
		_, _, err = s.current().client.ProducerID(ctx) // ends what the former owner of the id had begun
	}
	if err != nil {
		err = fmt.Errorf("connect to Kafka at %s: %w", strings.Join(a.brokers, ","), s.hide(err))
		return nil, outbox.Unavailable(errors.Join(err, s.Close()))
	}
	return s, nil
}

// address is what a URL says.
type address struct {
	secured        bool
	user, password string
	mechanism      string // of SASL; "" for none
	brokers        []string
	query          url.Values
}

// errURL is all that is said of a URL that cannot be parsed: a password with an unescaped slash turns up as port, path
// or option.
var errURL = errors.New("the Kafka URL is not of the form kafka://user:password@host1:9092,host2:9092 " +
	"(or kafkas://); in user and password write / ? # % @ percent-encoded. " +
	"It is not shown here because it may hold a password")

func parseURL(text string) (*address, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme != schemePlain && scheme != schemeTLS || strings.Contains(text, "#") {
		return nil, errURL
	}
	a := &address{secured: scheme == schemeTLS}
	rest, query, _ := strings.Cut(rest, "?")
	var err error
	if a.query, err = url.ParseQuery(query); err != nil {
		return nil, errURL
	}
	rest = strings.TrimSuffix(rest, "/")
	at := strings.LastIndexByte(rest, '@')
	if at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		a.user, err = url.PathUnescape(user)
		var passwordErr error
		a.password, passwordErr = url.PathUnescape(password)
		if err != nil || passwordErr != nil || a.user == "" || strings.ContainsAny(rest[:at], "/@") {
			return nil, errURL
		}
	}
	for name := range strings.SplitSeq(rest[at+1:], ",") {
		broker, err := hostPort(name)
		if err != nil {
			return nil, err
		}
		a.brokers = append(a.brokers, broker)
	}
	return a, a.chooseMechanism()
}

// hostPort returns a broker with its port.
func hostPort(name string) (string, error) {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		host, port = strings.Trim(name, "[]"), defaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", errURL
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, "/ ") {
		return "", errURL
	}
	return net.JoinHostPort(host, port), nil
}

func (a *address) chooseMechanism() error {
	a.mechanism = a.query.Get("sasl")
	switch known := []string{"plain", "scram-sha-256", "scram-sha-512"}; {
	case a.mechanism == "" && a.user != "":
		a.mechanism = known[0]
	case a.mechanism != "" && a.user == "":
		return errors.New("sasl needs a user in the Kafka URL: kafkas://user:password@host:9093?sasl=scram-sha-512")
	case a.mechanism != "" && !slices.Contains(known, a.mechanism):
		return fmt.Errorf("sasl must be one of %s", strings.Join(known, ", "))
	}
	return nil
}

// options are what the client needs of the URL.
func (a *address) options() []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(a.brokers...)}
	var mechanism sasl.Mechanism
	switch a.mechanism {
	case "plain":
		mechanism = plain.Auth{User: a.user, Pass: a.password}.AsMechanism()
	case "scram-sha-256":
		mechanism = scram.Auth{User: a.user, Pass: a.password}.AsSha256Mechanism()
	case "scram-sha-512":
		mechanism = scram.Auth{User: a.user, Pass: a.password}.AsSha512Mechanism()
	default:
		return options
	}
	return append(options, kgo.SASL(mechanism))
}

// configure adds the URL's options to cfg.
func (a *address) configure(cfg Config) (Config, error) {
	var problems []error
	if cfg.TLS != nil && !a.secured {
		problems = append(problems, errors.New("TLS is set but the URL is not kafkas://"))
	}
	if cfg.TLS == nil && a.secured {
		cfg.TLS = &tls.Config{}
	}
	for name, values := range a.query {
		value := values[len(values)-1]
		switch name {
		case "sasl":
		case "cloudevents":
			if value != "binary" && value != "structured" && value != "watermill" {
				problems = append(problems, errors.New("cloudevents must be structured, binary or watermill"))
			}
			cfg.Binary, cfg.Watermill = value == "binary", value == "watermill"
		case "create":
			creation, err := parseCreation(value)
			problems = append(problems, err)
			cfg.Create = creation
		case "compression":
			cfg.Compression = value
		case "transactional_id":
			cfg.TransactionalID = value
		case "max_message_bytes":
			n, err := strconv.Atoi(value)
			if err != nil {
				problems = append(problems, errors.New("max_message_bytes must be a number of bytes"))
			}
			cfg.MaxMessageBytes = n
		default: // not shown: it may be a piece of a password
			problems = append(problems, errors.New("the Kafka URL has an option other than sasl, cloudevents, create, "+
				"compression, transactional_id and max_message_bytes"))
		}
	}
	checked, err := cfg.withDefaults()
	return checked, errors.Join(append(problems, err)...)
}

var errCreation = errors.New("create must be partitions:replication, such as create=6:3")

func parseCreation(value string) (*Creation, error) {
	partitions, replication, _ := strings.Cut(value, ":")
	p, pErr := strconv.ParseInt(partitions, 10, 32)
	r, rErr := strconv.ParseInt(replication, 10, 16)
	if pErr != nil || rErr != nil || p < 1 || r < 1 {
		return nil, errCreation
	}
	return &Creation{Partitions: int(p), Replication: int(r)}, nil
}

// secret is a password that must not get into an error.
type secret string

// hide replaces an error that quotes the password, and keeps which of Kafka's errors it is.
func (s *Sink) hide(err error) error {
	if err == nil || s.password == "" || !strings.Contains(err.Error(), string(s.password)) {
		return err
	}
	var said *kerr.Error
	if errors.As(err, &said) {
		return fmt.Errorf("%w (the rest of the server's answer contains the password and is not shown)", said)
	}
	return errors.New("the server's answer contains the password and is not shown")
}
