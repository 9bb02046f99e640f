package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
)

// placed is the payload of the events here.
type placed struct {
	Key string `json:"key"`
	N   int    `json:"n"`  // within the key, from 0
	At  int64  `json:"at"` // when it was written, in nanoseconds
}

// arrivals is what came to one destination.
type arrivals struct {
	name string

	mu        sync.Mutex
	seen      map[string]bool
	next      map[string]int
	copies    int
	disorder  string
	latencies []time.Duration
}

// add takes the data of a message.
func (a *arrivals) add(data []byte) {
	var p placed
	if err := json.Unmarshal(data, &p); err != nil {
		panic(fmt.Sprintf("%s: %s: %v", a.name, data, err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id := p.Key + " " + strconv.Itoa(p.N)
	if a.seen[id] {
		a.copies++
		return
	}
	if a.seen == nil {
		a.seen, a.next = map[string]bool{}, map[string]int{}
	}
	a.seen[id] = true
	if a.next[p.Key] != p.N && a.disorder == "" {
		a.disorder = fmt.Sprintf("event %d of key %s came, and not event %d", p.N, p.Key, a.next[p.Key])
	}
	a.next[p.Key] = p.N + 1
	a.latencies = append(a.latencies, time.Since(time.Unix(0, p.At)))
}

// event takes a whole CloudEvent.
func (a *arrivals) event(message []byte) {
	var event struct{ Data json.RawMessage }
	if err := json.Unmarshal(message, &event); err != nil {
		panic(fmt.Sprintf("%s: %s: %v", a.name, message, err))
	}
	a.add(event.Data)
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// since returns the median and the 99th percentile of the latencies from the n-th arrival on.
func (a *arrivals) since(n int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	some := slices.Clone(a.latencies[min(n, len(a.latencies)):])
	if len(some) == 0 {
		return "-"
	}
	slices.Sort(some)
	return fmt.Sprintf("%s / %s", some[len(some)/2].Round(time.Millisecond),
		some[len(some)*99/100].Round(time.Millisecond))
}

// destinations are six servers that one event goes to.
type destinations struct {
	t                                             *testing.T
	redis, nats, kafka, rabbit, postgres, webhook *arrivals
	urls                                          map[string]string
	broker                                        *testenv.RabbitMQ
	refusing                                      atomic.Bool // the webhook's endpoint
	refused                                       atomic.Int64
}

func newDestinations(t *testing.T) *destinations {
	t.Helper()
	d := &destinations{t: t, urls: map[string]string{}}
	for name, a := range map[string]**arrivals{"redis": &d.redis, "nats": &d.nats, "kafka": &d.kafka, "rabbit": &d.rabbit,
		"postgres": &d.postgres, "webhook": &d.webhook} {
		*a = &arrivals{name: name}
	}
	d.listenRedis()
	d.listenNATS()
	d.listenKafka()
	d.listenPostgres()
	d.listenWebhook()
	d.broker = testenv.PrivateRabbitMQ(t)
	d.urls["rabbit"] = "amqp://guest:guest@" + d.broker.Addr() + "/%2F?declare=quorum"
	return d
}

func (d *destinations) all() []*arrivals {
	return []*arrivals{d.redis, d.nats, d.kafka, d.postgres, d.rabbit, d.webhook}
}

func (d *destinations) must(err error) {
	d.t.Helper()
	noError(d.t, err)
}

func (d *destinations) listenRedis() {
	server := testenv.RedisServer(d.t)
	d.urls["redis"] = "redis://" + server.Addr()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	d.t.Cleanup(func() { _ = client.Close() })
	subscription := client.Subscribe(d.t.Context(), "order.placed")
	_, err := subscription.Receive(d.t.Context())
	d.must(err)
	go func() {
		for m := range subscription.Channel(redis.WithChannelSize(10_000)) {
			d.redis.event([]byte(m.Payload))
		}
	}()
}

func (d *destinations) listenNATS() {
	server, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: d.t.TempDir(), NoSigs: true, NoLog: true,
	})
	d.must(err)
	server.Start()
	d.t.Cleanup(server.Shutdown)
	if !server.ReadyForConnections(tier.Patience()) {
		d.t.Fatal("no NATS server")
	}
	d.urls["nats"] = server.ClientURL()
	conn, err := nats.Connect(server.ClientURL())
	d.must(err)
	d.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	d.must(err)
	stream, err := js.CreateStream(d.t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"order.*"}})
	d.must(err)
	consumer, err := stream.OrderedConsumer(d.t.Context(), jetstream.OrderedConsumerConfig{})
	d.must(err)
	consuming, err := consumer.Consume(func(m jetstream.Msg) { d.nats.event(m.Data()) })
	d.must(err)
	d.t.Cleanup(consuming.Stop)
}

func (d *destinations) listenKafka() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "order.placed"))
	d.must(err)
	d.t.Cleanup(cluster.Close)
	d.urls["kafka"] = "kafka://" + strings.Join(cluster.ListenAddrs(), ",")
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("order.placed"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	d.must(err)
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { d.kafka.event(r.Value) })
		}
	}()
	d.t.Cleanup(func() { cancel(); <-done; client.Close() })
}

func (d *destinations) listenPostgres() {
	url := testenv.Database(d.t)
	d.urls["postgres"] = url + "&create=true"
	if !strings.Contains(url, "?") {
		d.urls["postgres"] = url + "?create=true"
	}
	pool, err := pgxpool.New(d.t.Context(), url)
	d.must(err)
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		// All rows each time: a transaction with lower positions may commit later.
		for read := map[int64]bool{}; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			rows, err := pool.Query(ctx, "SELECT position, payload FROM orders ORDER BY position")
			if err != nil {
				continue // the sink has not made it yet
			}
			for rows.Next() {
				var position int64
				var payload []byte
				if rows.Scan(&position, &payload) == nil && !read[position] {
					read[position] = true
					d.postgres.add(payload)
				}
			}
			rows.Close()
		}
	}()
	d.t.Cleanup(func() { cancel(); <-done; pool.Close() })
}

func (d *destinations) listenWebhook() {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
			return
		case d.refusing.Load():
			d.refused.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		d.webhook.event(body)
	}))
	d.t.Cleanup(endpoint.Close)
	file := filepath.Join(d.t.TempDir(), "endpoints.yaml")
	d.must(os.WriteFile(file, fmt.Appendf(nil,
		"endpoints:\n  - name: crm\n    url: %s\n    secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=]\n",
		endpoint.URL), 0o600))
	d.urls["webhook"] = "webhook:" + file + "?allow=private,http&schedule=200ms"
}

// drainRabbit takes what is in the queue, until it holds nothing for a moment and done says that
// this is all.
func (d *destinations) drainRabbit(done func() bool) {
	d.t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@" + d.broker.Addr() + "/")
	d.must(err)
	defer func() { _ = conn.Close() }()
	channel, err := conn.Channel()
	d.must(err)
	for end := time.Now().Add(tier.Patience()); time.Now().Before(end); {
		m, found, err := channel.Get("orders", true)
		d.must(err)
		switch {
		case found:
			d.rabbit.event(m.Body)
		case done():
			return
		default:
			time.Sleep(10 * time.Millisecond)
		}
	}
	d.t.Fatalf("%d events came to the queue", d.rabbit.count())
}

// One event goes to six destinations at once. While one of them refuses everything and another one
// is dead, the others get theirs; both catch up, the order of each key holds at each of them, and
// nothing comes twice where copies are refused.
func TestSixDestinations(t *testing.T) {
	tier.Full(t)
	const keys, before, during, after = 40, 10, 20, 5 // events of each key
	d := newDestinations(t)
	url := migrated(t)
	settings := filepath.Join(t.TempDir(), "outbox.yaml")
	var text strings.Builder
	text.WriteString("sink:\n")
	for name, url := range d.urls {
		fmt.Fprintf(&text, "  %s: %q\n", name, url)
	}
	text.WriteString(`routes:
  - table: outbox_events
    topic: order.placed
    to: [redis, nats, kafka, "postgres:orders", "rabbit:orders", "webhook:crm"]
retry:
  - {destination: "*", max_attempts: 10000, backoff_base: 100ms, backoff_factor: 1}
table: [outbox_events]
`)
	d.must(os.WriteFile(settings, []byte(text.String()), 0o600))
	c := &command{t: t, environ: []string{"OUTBOX_DATABASE_URL=" + url, "OUTBOX_CONFIG=" + settings}}
	c.start("relay", "--listen", "127.0.0.1:0")
	c.until(func() bool { return strings.Contains(c.log.String(), `"relaying"`) })

	pool, err := pgxpool.New(t.Context(), url)
	d.must(err)
	defer pool.Close()
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	d.must(err)
	// 500 events a second, so that latencies are not those of a backlog.
	write := func(from, upto int) {
		t.Helper()
		tick := time.NewTicker(time.Second * keys / 500)
		defer tick.Stop()
		for n := from; n < upto; n++ {
			<-tick.C
			tx, err := pool.Begin(t.Context())
			d.must(err)
			for k := range keys {
				payload, err := json.Marshal(placed{fmt.Sprint("k", k), n, time.Now().UnixNano()})
				d.must(err)
				d.must(writer.Write(t.Context(), tx, outbox.Event{
					Topic: "order.placed", AggregateType: "Order", AggregateID: fmt.Sprint("k", k), Payload: payload}))
			}
			d.must(tx.Commit(t.Context()))
		}
	}
	wait := func(n int, of ...*arrivals) {
		t.Helper()
		for _, a := range of {
			c.until(func() bool { return a.count() >= n*keys })
		}
	}
	healthy := []*arrivals{d.redis, d.nats, d.kafka, d.postgres}
	write(0, before)
	wait(before, append(healthy, d.webhook)...)
	d.drainRabbit(func() bool { return d.rabbit.count() >= before*keys })

	d.refusing.Store(true)
	d.must(d.broker.Kill())
	write(before, before+during)
	wait(before+during, healthy...)
	if d.refused.Load() == 0 || d.webhook.count() != before*keys {
		t.Fatalf("the fault did not strike: the endpoint refused %d requests and has %d events", d.refused.Load(),
			d.webhook.count())
	}
	c.until(func() bool { // what arrived from outbox_deliveries is owed until it is settled
		states := strings.TrimSpace(c.run(0, "", "sinks"))
		return !slices.ContainsFunc(strings.Split(states, "\n")[1:], func(line string) bool {
			owes := strings.HasPrefix(line, "rabbit") || strings.HasPrefix(line, "webhook")
			return owes != strings.Contains(line, "outbox_events")
		})
	})
	t.Logf("p50 / p99 before, and while one destination refuses and one is dead:")
	for _, a := range healthy {
		t.Logf("%-8s %20s, %20s", a.name, func() string {
			a.mu.Lock()
			all := a.latencies
			a.latencies = all[:before*keys]
			a.mu.Unlock()
			first := a.since(0)
			a.mu.Lock()
			a.latencies = all
			a.mu.Unlock()
			return first
		}(), a.since(before*keys))
	}

	d.must(d.broker.Restart())
	d.refusing.Store(false)
	write(before+during, before+during+after)
	const total = before + during + after
	wait(total, append(healthy, d.webhook)...)
	d.drainRabbit(func() bool { return d.rabbit.count() >= total*keys })
	for _, a := range d.all() {
		a.mu.Lock()
		if len(a.seen) != total*keys || a.disorder != "" {
			t.Errorf("%s has %d events, want %d; %s", a.name, len(a.seen), total*keys, a.disorder)
		}
		// Kafka refuses no copy of what it took without answering within RouteTimeout, as on a busy
		// machine.
		if a.copies > 0 && a != d.rabbit && a != d.webhook && a.name != "kafka" {
			t.Errorf("%s has %d copies", a.name, a.copies)
		}
		a.mu.Unlock()
	}
	var left int
	c.until(func() bool {
		d.must(pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM outbox_deliveries WHERE status <> 'delivered') +
			(SELECT count(*) FROM outbox_events WHERE status <> 'SENT') + (SELECT count(*) FROM job_dlq)`).Scan(&left))
		return left == 0
	})
}
