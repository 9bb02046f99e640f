package rabbitmq

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
)

// Tests that kill the server, or change what it does for all, have it for themselves: the parallel
// ones come after them. A second server would cost a quarter of what all these tests do.
func TestServerForItself(t *testing.T) {
	tier.Full(t)
	server := testenv.RabbitMQServer(t)
	t.Run("contract", func(t *testing.T) { contract(t, server, amqp.QueueTypeClassic) })
	t.Run("contract, streams", func(t *testing.T) { contract(t, server, amqp.QueueTypeStream) })
	t.Run("memory alarm", func(t *testing.T) { memoryAlarm(t, server) })
}

// contract holds with destinations that are classic queues, quorum queues where the server is
// killed, or streams.
func contract(t *testing.T, server *testenv.RabbitMQ, kind string) {
	var names atomic.Int64
	features := outboxtest.SinkFeatures{Durable: true, Headers: prefix}
	outboxtest.SinkSuite(t, features, func(t *testing.T) outboxtest.SinkHarness {
		b := connectBroker(t, server)
		p := sinktest.NewProxy(t, server.Addr())
		return outboxtest.SinkHarness{
			Sink:   open(t, behind(p, b.vhost), Config{}),
			Binary: open(t, b.url()+"?cloudevents=binary", Config{}),
			Listen: func(t *testing.T) (string, <-chan outboxtest.Arrived) {
				name := fmt.Sprintf("suite.%d", names.Add(1))
				kept := strings.HasSuffix(t.Name(), "keeps_what_it_acknowledged") // nobody may take anything out
				if kept && kind != amqp.QueueTypeStream {
					b.queue(t, name, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
					return name, nil
				}
				b.queue(t, name, amqp.Table{amqp.QueueTypeArg: kind})
				if kept {
					return name, nil
				}
				if kind == amqp.QueueTypeStream {
					return name, b.listen(t, b.read(t, name))
				}
				return name, b.listen(t, b.consume(t, name))
			},
			Stored: func(t *testing.T, queue string, n int) []outboxtest.Arrived {
				b.reconnect(t)
				var stored []outboxtest.Arrived
				if kind == amqp.QueueTypeStream {
					messages := b.read(t, queue)
					for len(stored) < n {
						stored = append(stored, arrived(next(t, messages)))
					}
					return stored
				}
				eventually(t, func() bool { // a quorum queue has no leader for a moment
					for _, m := range b.stored(t, queue) {
						stored = append(stored, arrived(m))
					}
					return len(stored) >= n
				})
				return stored[:n]
			},
			Restart:   func(t *testing.T) { killWhilePublishing(t, server) },
			Refusing:  "no-such-queue",
			Forbidden: []string{"", "/", "line\nbreak", "exchange\r/key", strings.Repeat("x", 256), "100%/key", "bad\xffutf8"},
			Stall:     func(*testing.T) func() { return p.Stall() },
		}
	})
}

// listen passes messages on.
func (b *broker) listen(t *testing.T, messages <-chan amqp.Delivery) <-chan outboxtest.Arrived {
	out := make(chan outboxtest.Arrived, 10000) // more than any test sends
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range messages {
			out <- arrived(m)
		}
	}()
	conn := b.conn
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return out
}

func arrived(m amqp.Delivery) outboxtest.Arrived {
	a := outboxtest.Arrived{Body: m.Body, Headers: map[string]string{}}
	for name, value := range m.Headers {
		a.Headers[name] = fmt.Sprint(value)
	}
	return a
}
