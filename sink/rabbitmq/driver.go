package rabbitmq

import (
	"context"
	"errors"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes:   []string{"amqp", "amqps"},
		Example:   "amqp://user:password@host:5672/vhost for RabbitMQ, amqps:// for TLS",
		Variables: []string{"CLOUDAMQP_URL", "RABBITMQ_URL"},
		Open:      openByURL, Check: checkURL, Mask: sinkurl.Mask, Plaintext: plaintext, Hint: hint,
	}
}

func openByURL(ctx context.Context, url string, _ sink.Options) (sink.Sink, error) {
	s, err := Open(ctx, url, Config{})
	if err != nil {
		return nil, err
	}
	return s, nil
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
	var e *amqp.Error
	switch {
	case errors.As(err, &e) && (e.Code == amqp.AccessRefused || e.Code == amqp.NotAllowed):
		return "correct user, password or virtual host in the URL, or the user's rights (rabbitmqctl set_permissions)"
	case strings.Contains(err.Error(), "connect to RabbitMQ"):
		return "is RabbitMQ running there?"
	}
	return ""
}
