package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes: []string{schemePlain, schemeTLS},
		Example: "kafka://host1:9092,host2:9092, kafkas://user:password@host:9093?sasl=scram-sha-512 for TLS and SASL",
		Open:    openByURL, Check: checkURL, Mask: sinkurl.Mask, Plaintext: plaintext, Hint: hint,
	}
}

func openByURL(ctx context.Context, url string, _ sink.Options) (sink.Sink, error) {
	s, err := Open(ctx, url, Config{})
	if err != nil {
		return nil, lasting(err)
	}
	return s, nil
}

// lasting takes the class outbox.ClassUnavailable off an error that waiting does not cure. That is of a cluster that
// does not know the user, the password or the way to show them, or one that nobody vouches for.
func lasting(err error) error {
	var certificate *tls.CertificateVerificationError
	if isAuth(err) || isRight(err) || errors.As(err, &certificate) {
		return outbox.Permanent(err)
	}
	return err
}

func checkURL(url string) error {
	_, err := parse(url, &Config{})
	return err
}

// plaintext returns the hosts that are reached without TLS and may be on other machines.
func plaintext(url string) []string {
	u, err := family.Parse(url)
	if err != nil || u.Secure {
		return nil
	}
	return sinkurl.Elsewhere(u.Hosts)
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
