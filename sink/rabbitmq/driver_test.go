package rabbitmq

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/sink/sinks"
	"github.com/outboxrelay/outbox/sink"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"amqp://h": "", "amqps://u:p@h:5671/v": "", "amqp://a,b:2/": "", "amqp://[::1]:5672": "",
		"amqp://u:hunter2@h:0": "none of 1 to 65535", "amqp://u:hunter2@h:99999": "none of 1 to 65535",
		"amqp://u:hunter2@h/v?declare=classic": "quorum", "amqp://u:hunter2@h/v?cloudevents=both": "structured",
		"amqp://u:hunter2@h/v?hunter2=1": "an option that is none of", "amqp://u:hunt/er2@h": "%2F",
		"amqp://u:hunter2@h,": "not of the form",
	} {
		err := checkURL(url)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want %q", url, err, says)
		}
	}
}

func TestPlaintext(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"amqp://mq:5672/v": "[mq]", "amqp://u:p@10.0.0.7": "[10.0.0.7]", "amqp://[2001:db8::1]:5672": "[2001:db8::1]",
		"amqp://a:1,localhost:2,b:3/": "[a b]",
		"amqp://127.0.0.1":            "[]", "amqp://localhost": "[]", "amqp://[::1]:5672/v": "[]", "amqps://mq": "[]",
	} {
		if got := fmt.Sprint(plaintext(url)); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	d := Driver()
	if _, err := sinks.NewRegistry(d); err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(t.Context(), b.url(), sink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Abilities().Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := d.Mask("amqp://u:hunter2@h:5672/v?declare=quorum"); got != "amqp://h:5672/v" {
		t.Errorf("masked: %s", got)
	}
}
