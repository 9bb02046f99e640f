package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes: []string{family.Plain, family.Secure},
		Example: "kafka://host1:9092,host2:9092, kafkas://user:password@host:9093?sasl=scram-sha-512 (TLS)",
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
	switch {
	case isAuth(err):
		return "correct user or password in the Kafka URL, or its sasl= (plain, scram-sha-256, scram-sha-512)"
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return "give the Kafka user the right IdempotentWrite on the cluster"
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return "give the Kafka user the rights Describe and Write on the transactional id"
	case strings.Contains(err.Error(), "connect to Kafka"):
		return "is Kafka running there, and is the URL's scheme right (kafkas:// for TLS)?"
	}
	return ""
}

// Open connects to the cluster that a URL names and returns a Sink that Close closes:
//
//	kafka://host1:9092,host2:9092                            some brokers of a cluster; the others are found
//	kafkas://user:password@host:9093?sasl=scram-sha-512      with TLS and SASL
//
// Options: sasl=plain (the default for a URL with a user), scram-sha-256 or scram-sha-512;
// cloudevents=structured (the default), binary or watermill; create=partitions:replication,
// compression, transactional_id and max_message_bytes as Config has them. They win over cfg.
//
// A cluster that cannot be reached is an error of class outbox.ClassUnavailable. One that does not
// know the user, the password or the way to show them, or for which nobody vouches, is one of class
// outbox.ClassPermanent.
func Open(ctx context.Context, address string, cfg Config) (*Sink, error) {
	a, err := parse(address, &cfg)
	if err != nil {
		return nil, fmt.Errorf("configure Kafka sink: %w", err)
	}
	s, err := New(cfg, a.options()...)
	if err != nil {
		return nil, err
	}
	s.password = a.Secret()
	err = s.current().client.Ping(ctx)
	if err == nil && cfg.TransactionalID != "" {
		_, _, err = s.current().client.ProducerID(ctx) // ends what the former owner of the id had begun
	}
	if err != nil {
		err = fmt.Errorf("connect to Kafka at %s: %w", strings.Join(a.Hosts, ","), s.hide(err))
		return nil, sinkurl.Failed(errors.Join(err, s.Close()), isAuth(err) || isRight(err))
	}
	return s, nil
}

var family = sinkurl.Family{Name: "Kafka", Form: "kafka://user:password@host1:9092,host2:9092 (or kafkas://)",
	Plain: "kafka", Secure: "kafkas", Port: "9092"}

// address is what a URL says.
type address struct {
	*sinkurl.URL
	mechanism string // of SASL; "" for none
}

// parse reads a URL, whose options win over cfg, and completes cfg.
func parse(text string, cfg *Config) (*address, error) {
	u, err := family.Parse(text)
	if err != nil {
		return nil, err
	}
	a := &address{URL: u}
	create := ""
	problems := []error{u.Take(
		sinkurl.OneOf("sasl", []string{"plain", "scram-sha-256", "scram-sha-512"}, func(v string) { a.mechanism = v }),
		sinkurl.CloudEvents(&cfg.Binary, &cfg.Watermill), sinkurl.Text("create", &create),
		sinkurl.Text("compression", &cfg.Compression), sinkurl.Text("transactional_id", &cfg.TransactionalID),
		sinkurl.Number("max_message_bytes", &cfg.MaxMessageBytes, 1, math.MaxInt32))}
	switch {
	case a.mechanism == "" && u.Account != nil:
		a.mechanism = "plain"
	case a.mechanism != "" && u.Account == nil:
		problems = append(problems,
			errors.New("sasl needs a user in the Kafka URL: kafkas://user:password@host:9093?sasl=scram-sha-512"))
	}
	if create != "" {
		var err error
		cfg.Create, err = parseCreation(create)
		problems = append(problems, err)
	}
	problems = append(problems, u.CheckTLS(cfg.TLS))
	if u.Secure && cfg.TLS == nil {
		cfg.TLS = &tls.Config{}
	}
	*cfg, err = cfg.withDefaults()
	return a, errors.Join(append(problems, err)...)
}

// options are what the client needs of the URL.
func (a *address) options() []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(a.Hosts...)}
	if a.mechanism == "" {
		return options
	}
	user := a.Account.Username()
	password, _ := a.Account.Password()
	var mechanism sasl.Mechanism
	switch a.mechanism {
	case "plain":
		mechanism = plain.Auth{User: user, Pass: password}.AsMechanism()
	case "scram-sha-256":
		mechanism = scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "scram-sha-512":
		mechanism = scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return append(options, kgo.SASL(mechanism))
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

// hide replaces an error that quotes the password, and keeps which of Kafka's errors it is.
func (s *Sink) hide(err error) error {
	if err == nil || s.password == "" || !strings.Contains(err.Error(), s.password) {
		return err
	}
	var said *kerr.Error
	if errors.As(err, &said) {
		return fmt.Errorf("%w (the rest of the server's answer contains the password and is not shown)", said)
	}
	return sinkurl.Hide(err, s.password)
}
