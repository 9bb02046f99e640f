package rabbitmq

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestMain(m *testing.M) {
	testenv.AtOnce(8) // they wait for the server most of the time
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
	case <-time.After(testenv.Patience):
		t.Fatalf("no message for %s", testenv.Patience)
	}
	return amqp.Delivery{}
}

func open(t testing.TB, url string, cfg Config) *Sink {
	t.Helper()
	s, err := Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// newEvent returns a delivery of a new event; events of the same key stay in order.
func newEvent(t testing.TB, to string, key int) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d", key)
	return outbox.Delivery{Destination: to, Record: &outbox.Record{
		Event: outbox.Event{
			ID: id, Topic: "order.placed", OccurredAt: time.Now().Truncate(time.Microsecond), AggregateType: "Order",
			AggregateID: fmt.Sprint(key),
			TenantID:    "acme", Source: "orders", Payload: []byte(`{"total":1}`),
		},
		OrderKey: int64(h.Sum64()), Keyed: true,
	}}
}

// toward is d's event for another destination.
func toward(d outbox.Delivery, destination string) outbox.Delivery {
	d.Destination = destination
	return d
}

func ids(batch ...outbox.Delivery) (list []string) {
	for _, d := range batch {
		list = append(list, d.ID.String())
	}
	return list
}

// deliver publishes and checks that all were delivered.
func deliver(t testing.TB, s sink.Sink, batch ...outbox.Delivery) {
	t.Helper()
	for i, res := range s.Publish(t.Context(), batch) {
		if res != (outbox.Result{}) {
			t.Fatalf("delivery %d is answered %+v, want delivered", i, res)
		}
	}
}

func wantClass(t testing.TB, err error, want outbox.Class) {
	t.Helper()
	if class, _ := outbox.Classify(err); err == nil || class != want {
		t.Errorf("got error %v of class %v, want class %v", err, class, want)
	}
}

// eventually waits until ok, for what another process does in its own time.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing for %s", testenv.Patience)
		}
	}
}

// proxy stands between the sink and a server, and can stand still or break off.
type proxy struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu      sync.Mutex
	conns   []net.Conn
	stalled chan struct{} // closed when it goes on; nil while it does
	ended   chan struct{}
	held    atomic.Int64 // reads that are held back by stall
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target, ended: make(chan struct{})}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		close(p.ended)
		_ = listener.Close()
		p.cut()
		p.done.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		p.done.Go(func() { p.copy(far, near) })
		p.done.Go(func() { p.copy(near, far) })
	}
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.mu.Lock()
			stalled := p.stalled
			p.mu.Unlock()
			if stalled != nil {
				p.held.Add(1)
				select {
				case <-stalled:
				case <-p.ended:
				}
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

// stall holds back what comes, from either side.
func (p *proxy) stall() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stalled := make(chan struct{})
	p.stalled = stalled
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stalled = nil
		close(stalled)
	})
}

func (p *proxy) url(vhost string) string {
	return "amqp://guest:guest@" + p.listener.Addr().String() + "/" + vhost
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
