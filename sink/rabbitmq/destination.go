package rabbitmq

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxName is the longest exchange, queue or routing key in bytes: AMQP 0-9-1 has one byte for the
// length of a short string (section 4.2.5.3).
const maxName = 255

// address is where a message goes. Without an exchange it goes to the default one, whose routing
// key is the name of a queue.
type address struct{ exchange, key string }

// Destination writes an exchange and a routing key as the destination of an event, so that the sink
// reads the same from it. Without an exchange the key is the name of a queue.
func Destination(exchange, key string) string {
	if exchange == "" && !strings.Contains(key, "/") {
		return key
	}
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(exchange) + "/" + key
}

// parseDestination reads what Destination writes. An error is of a name that no RabbitMQ can have.
func parseDestination(text string) (a address, err error) {
	if exchange, key, found := strings.Cut(text, "/"); found {
		if a.exchange, err = url.PathUnescape(exchange); err != nil {
			return address{}, errors.New("its exchange has a % that does not begin a percent-encoded byte: write it %25")
		}
		a.key = key
	} else {
		a.key = text
	}
	if err := errors.Join(checkName("exchange", a.exchange), checkName("routing key", a.key)); err != nil {
		return address{}, err
	}
	if a.exchange == "" && a.key == "" {
		return address{}, errors.New("it names neither an exchange nor a queue: write a queue, or exchange/routing.key")
	}
	return a, nil
}

func checkName(what, name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("its %s has %d bytes, more than %d", what, len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("its %s is not UTF-8", what)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("its %s has a control character", what)
	}
	return nil
}

func (a address) String() string {
	if a.exchange == "" {
		return fmt.Sprintf("queue %q", a.key)
	}
	return fmt.Sprintf("exchange %q with routing key %q", a.exchange, a.key)
}
