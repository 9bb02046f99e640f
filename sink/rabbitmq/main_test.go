package rabbitmq

import (
	"context"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/sink"
)

func TestMain(m *testing.M) {
	testenv.AtOnce(8) // they wait for the server most of the time
	testenv.ExamplesNeed("rabbitmq-server")
	testenv.Main(m)
}

// broker is a virtual host of a server, and a connection for what the sink cannot do.
type broker struct {
	*testenv.RabbitMQ
	vhost string
	conn  *amqp.Connection
	ch    *amqp.Channel
}

// newBroker takes a virtual host of the server that the tests of this package share.
func newBroker(t testing.TB) *broker {
	t.Helper()
	return connectBroker(t, testenv.RabbitMQServer(t))
}

func connectBroker(t testing.TB, server *testenv.RabbitMQ) *broker {
	t.Helper()
	b := &broker{RabbitMQ: server, vhost: server.Vhost(t)}
	t.Cleanup(func() {
		if t.Failed() {
			text, err := server.Log()
			t.Logf("the end of RabbitMQ's log (error %v):\n%s", err, text[max(0, len(text)-4000):])
		}
	})
	b.reconnect(t)
	return b
}

func (b *broker) reconnect(t testing.TB) {
	t.Helper()
	conn, err := amqp.Dial(b.url())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.conn, b.ch = conn, channelOf(t, conn)
}

func channelOf(t testing.TB, conn *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func (b *broker) url() string { return b.URL(b.vhost) }

// queue makes a durable queue.
func (b *broker) queue(t testing.TB, name string, args amqp.Table) {
	t.Helper()
	if _, err := b.ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// exchange makes a durable exchange.
func (b *broker) exchange(t testing.TB, name, kind string) {
	t.Helper()
	if err := b.ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) bind(t testing.TB, queue, key, exchange string) {
	t.Helper()
	if err := b.ch.QueueBind(queue, key, exchange, false, nil); err != nil {
		t.Fatal(err)
	}
}

// consume returns what arrives in a queue, in its order.
func (b *broker) consume(t testing.TB, queue string) <-chan amqp.Delivery {
	t.Helper()
	messages, err := channelOf(t, b.conn).Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// read returns what is in a stream and what arrives there, in its order.
func (b *broker) read(t testing.TB, stream string) <-chan amqp.Delivery {
	t.Helper()
	ch := channelOf(t, b.conn)
	if err := ch.Qos(10_000, 0, false); err != nil { // more than any test sends: nothing is acknowledged
		t.Fatal(err)
	}
	messages, err := ch.Consume(stream, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// stored takes all messages out of a queue.
func (b *broker) stored(t testing.TB, queue string) (messages []amqp.Delivery) {
	t.Helper()
	ch := channelOf(t, b.conn)
	for {
		m, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return messages
		}
		messages = append(messages, m)
	}
}

func idsOf(messages []amqp.Delivery) (list []string) {
	for _, m := range messages {
		list = append(list, m.MessageId)
	}
	return list
}

// next returns the next message.
func next(t testing.TB, messages <-chan amqp.Delivery) amqp.Delivery {
	t.Helper()
	select {
	case m, ok := <-messages:
		if !ok {
			t.Fatal("the queue is gone")
		}
		return m
	case <-time.After(tier.Patience()):
		t.Fatalf("no message for %s", tier.Patience())
	}
	return amqp.Delivery{}
}

var (
	newEvent, ids, deliver = sinktest.Event, sinktest.IDs, sinktest.Deliver
	wantClass, eventually  = sinktest.WantClass, sinktest.Eventually
)

func open(t testing.TB, url string, cfg Config) *Sink {
	t.Helper()
	s, err := Open(t.Context(), url, cfg)
	return sinktest.Closing(t, s, err)
}

// toward is d's event for another destination.
func toward(d outbox.Delivery, destination string) outbox.Delivery {
	d.Destination = destination
	return d
}

// behind is the URL of a virtual host behind a proxy.
func behind(p *sinktest.Proxy, vhost string) string {
	return "amqp://guest:guest@" + p.Addr + "/" + vhost
}

// answers publishes and sorts the answers: positions of those delivered, and the errors.
func answers(ctx context.Context, s sink.Sink, batch []outbox.Delivery) (delivered []string, failed map[string]error) {
	failed = map[string]error{}
	for i, res := range s.Publish(ctx, batch) {
		if res.Err == nil {
			delivered = append(delivered, batch[i].ID.String())
		} else {
			failed[batch[i].ID.String()] = res.Err
		}
	}
	slices.Sort(delivered)
	return delivered, failed
}
