package natsjs

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes:   []string{"nats", "tls"},
		Example:   "nats://user:password@host:4222 for JetStream, tls:// for TLS",
		Variables: []string{"NATS_URL"},
		Open:      openByURL, Check: checkURL, Mask: sinkurl.Mask, Plaintext: plaintext, Hint: hint,
	}
}

func openByURL(ctx context.Context, url string, o sink.Options) (sink.Sink, error) {
	s, err := Open(ctx, url, Config{Window: o.Window})
	if err != nil {
		return nil, lasting(err)
	}
	return s, nil
}

// refusedUser tells whether the server knows the user or its password not, or no longer.
func refusedUser(err error) bool {
	for _, refused := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked,
		nats.ErrAccountAuthExpired} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
}

// lasting takes the class outbox.ClassUnavailable off an error that waiting does not cure: a server that refuses the
// user, one that nobody vouches for, or one without TLS.
func lasting(err error) error {
	var certificate *tls.CertificateVerificationError
	if refusedUser(err) || errors.As(err, &certificate) || errors.Is(err, nats.ErrSecureConnWanted) {
		return outbox.Permanent(err)
	}
	return err
}

func checkURL(url string) error {
	_, err := parse(url, &Config{})
	return err
}

// plaintext returns the hosts that are reached without TLS and may be on other machines. A server that demands TLS gets
// it, but nobody who stands between would.
func plaintext(url string) []string {
	u, err := family.Parse(url)
	if err != nil || u.Secure {
		return nil
	}
	return sinkurl.Elsewhere(u.Hosts)
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
