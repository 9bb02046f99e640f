package chaos

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
)

// openRedisStream starts a Redis that writes down what it is to remember before it answers.
func openRedisStream(w *world, _ string) *broker {
	w.t.Helper()
	args := append([]string{"--user", "relay", "on", ">hunter2", "~*", "+@all"}, redisOnDisk...)
	server := testenv.RedisServerWith(w.t, testenv.RedisConfig{Args: args})
	w.redis = server
	w.admin = redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket(), MaxRetries: -1})
	w.t.Cleanup(func() { _ = w.admin.Close() })
	b := &broker{faults: map[string]func() func(){}, refuses: true, server: server, proxy: newProxy(w.t, server.Addr())}
	b.url = "redis+stream://relay:hunter2@" + b.proxy.Listen + "?create=true"
	b.received = func() (all []outboxtest.Received) {
		entries, err := w.admin.XRange(w.t.Context(), destination, "-", "+").Result()
		w.must(err)
		for _, e := range entries {
			r, _ := arrived([]byte(fmt.Sprint(e.Values["event"])), destination)
			all = append(all, r)
		}
		return all
	}
	b.faults["full"] = func() func() {
		w.command("CONFIG", "SET", "maxmemory", "1")
		return func() { w.command("CONFIG", "SET", "maxmemory", "0") }
	}
	b.faults["denied"] = func() func() {
		w.command("ACL", "SETUSER", "relay", "-xadd")
		return func() { w.command("ACL", "SETUSER", "relay", "+xadd") }
	}
	return b
}

// natsUsers is the part of a server's configuration that says what the relay may do.
const natsUsers = `authorization { users: [
	{ user: relay, password: hunter2, permissions: { publish: "%s", subscribe: ">" } },
	{ user: admin, password: hunter3 } ] }`

func openNATS(w *world, _ string) *broker {
	w.t.Helper()
	server := testenv.NATSServer(w.t, testenv.NATSConfig{NoSync: true, Text: fmt.Sprintf(natsUsers, ">")})
	conn, err := nats.Connect("nats://admin:hunter3@"+server.Addr(), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond), nats.IgnoreAuthErrorAbort())
	w.must(err)
	w.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(tier.Patience()))
	w.must(err)
	config := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{destination}, Discard: jetstream.DiscardNew}
	stream, err := js.CreateStream(w.t.Context(), config)
	w.must(err)
	b := &broker{faults: map[string]func() func(){}, refuses: true, server: server, proxy: newProxy(w.t, server.Addr())}
	b.url = "nats://relay:hunter2@" + b.proxy.Listen
	b.received = func() (all []outboxtest.Received) {
		info, err := stream.Info(w.t.Context())
		w.must(err)
		consumer, err := stream.OrderedConsumer(w.t.Context(), jetstream.OrderedConsumerConfig{})
		w.must(err)
		for uint64(len(all)) < info.State.Msgs {
			batch, err := consumer.Fetch(500, jetstream.FetchMaxWait(time.Second))
			w.must(err)
			for m := range batch.Messages() {
				r, _ := arrived(m.Data(), destination)
				all = append(all, r)
			}
		}
		return all
	}
	b.faults["full"] = func() func() {
		full := config
		full.MaxMsgs = 1
		_, err := js.UpdateStream(w.t.Context(), full)
		w.must(err)
		return func() { _, err := js.UpdateStream(w.t.Context(), config); w.must(err) }
	}
	b.faults["denied"] = func() func() {
		text, err := server.Config()
		w.must(err)
		denied := strings.Replace(text, fmt.Sprintf(natsUsers, ">"), fmt.Sprintf(natsUsers, "$JS.>"), 1)
		w.must(server.Configure(denied))
		w.must(server.Reload())
		return func() { w.must(server.Configure(text)); w.must(server.Reload()) }
	}
	return b
}

func openKafka(w *world, _ string) *broker {
	w.t.Helper()
	address := freeAddress(w.t)
	b := &broker{faults: map[string]func() func(){}, proxy: newProxy(w.t, address)}
	server := newChild(w.t, roleKafka, address, fileVariable+"="+w.t.TempDir(), nameVariable+"="+b.proxy.Listen)
	b.server, b.url = server, "kafka://"+b.proxy.Listen
	b.received = func() (all []outboxtest.Received) {
		client, err := kgo.NewClient(kgo.SeedBrokers(b.proxy.Listen), kgo.ConsumeTopics(destination),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		w.must(err)
		defer client.Close()
		for n := w.records(client); len(all) < n; {
			fetches := client.PollFetches(w.t.Context())
			w.must(fetches.Err())
			fetches.EachRecord(func(record *kgo.Record) {
				r, _ := arrived(record.Value, destination)
				all = append(all, r)
			})
		}
		return all
	}
	for name, command := range map[string]string{"full": commandFull, "denied": commandDenied} {
		b.faults[name] = func() func() {
			w.uncertain() // the client tries again by itself, and fails a topic as a whole
			return server.told(w.t, command)()
		}
	}
	return b
}

// records is how many there are in the partitions of the topic.
func (w *world) records(client *kgo.Client) (n int) {
	w.t.Helper()
	metadata := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(destination)
	metadata.Topics = append(metadata.Topics, topic)
	known, err := metadata.RequestWith(w.t.Context(), client)
	w.must(err)
	request, asked := kmsg.NewPtrListOffsetsRequest(), kmsg.NewListOffsetsRequestTopic()
	asked.Topic = destination
	for _, p := range known.Topics[0].Partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p.Partition, -1 // its end
		asked.Partitions = append(asked.Partitions, partition)
	}
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(w.t.Context(), client)
	w.must(err)
	for _, p := range answer.Topics[0].Partitions {
		n += int(p.Offset)
	}
	return n
}

// openRabbitMQ has a quorum queue, from which nothing is taken before the end.
func openRabbitMQ(w *world, fault string) *broker {
	w.t.Helper()
	server := testenv.RabbitMQServer
	if fault == "killed" || fault == "paused" || fault == "alarm" { // which the whole server notices
		server = ownRabbitMQ
	}
	own := server(w.t)
	vhost := own.Vhost(w.t)
	channel := func() (*amqp.Channel, func()) {
		conn, err := amqp.Dial(own.URL(vhost))
		w.must(err)
		ch, err := conn.Channel()
		w.must(err)
		return ch, func() { _ = conn.Close() }
	}
	ch, done := channel()
	_, err := ch.QueueDeclare(destination, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	w.must(err)
	done()
	b := &broker{faults: map[string]func() func(){}, server: own, proxy: newProxy(w.t, own.Addr())}
	b.url = "amqp://guest:guest@" + b.proxy.Listen + "/" + vhost
	var all []outboxtest.Received
	b.received = func() []outboxtest.Received {
		ch, done := channel()
		defer done()
		queue, err := ch.QueueDeclarePassive(destination, true, false, false, false, nil)
		w.must(err)
		messages, err := ch.Consume(destination, "", false, false, false, false, nil) // Get takes a minute for 2000
		w.must(err)
		for n := range queue.Messages {
			select {
			case m := <-messages:
				r, _ := arrived(m.Body, destination)
				all = append(all, r)
				if n%1000 == 999 || n == queue.Messages-1 { // a quorum queue stops at 2000 that nobody acknowledged
					w.must(m.Ack(true))
				}
			case <-time.After(tier.Patience()):
				w.t.Fatalf("%d of %d messages came out of the queue", n, queue.Messages)
			}
		}
		return all
	}
	limit := func(messages int) {
		own.Eval(w.t, fmt.Sprintf(`rabbit_policy:set(<<%q>>, <<"full">>, <<%q>>, [{<<"max-length">>, %d},
			{<<"overflow">>, <<"reject-publish">>}], 0, <<"queues">>, <<"test">>).`, vhost, destination, messages))
	}
	b.faults["full"] = func() func() {
		limit(1)
		return func() { limit(1_000_000); b.received() } // it notices its room when something is taken out
	}
	b.faults["alarm"] = func() func() {
		watermark := func(share string) {
			own.Eval(w.t, "vm_memory_monitor:set_vm_memory_high_watermark("+share+").")
		}
		w.uncertain()
		watermark("0.0001")
		return func() { watermark("0.4") }
	}
	// Rights do not concern channels that have written already: so those of the relays are ended.
	reconnect := func() { w.uncertain(); b.proxy.Stop(); w.must(b.proxy.Start()) }
	b.faults["denied"] = func() func() {
		own.Allow(w.t, "guest", vhost, "^$", "^$", ".*")
		reconnect()
		return func() { own.Allow(w.t, "guest", vhost, ".*", ".*", ".*"); reconnect() }
	}
	return b
}

// starting has servers of RabbitMQ start one at a time: several at once take a busy machine more
// than the minute they have.
var starting sync.Mutex

func ownRabbitMQ(t testing.TB) *testenv.RabbitMQ {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	server := testenv.PrivateRabbitMQ(t)
	return server
}

// openTable has another PostgreSQL database than that of the events.
func openTable(w *world, fault string) *broker {
	w.t.Helper()
	b := &broker{faults: map[string]func() func(){}, refuses: true}
	alone, address := fault != "", ""
	if alone {
		server := testenv.PostgresServer(w.t, testenv.PostgresConfig{Fsync: true, SmallDisk: 96,
			Settings: map[string]string{"max_wal_size": "16MB", "min_wal_size": "2MB"}})
		b.server, b.proxy, address = server, newProxy(w.t, server.Addr()), server.TCPURL("postgres")
		b.faults["full"] = func() func() {
			free, err := server.Fill()
			w.must(err)
			return func() { w.must(free()) }
		}
	} else {
		address = testenv.Database(w.t)
	}
	pool, err := pgxpool.New(w.t.Context(), address)
	w.must(err)
	w.t.Cleanup(pool.Close)
	u, err := url.Parse(address)
	w.must(err)
	if alone {
		_, err := pool.Exec(w.t.Context(), "CREATE ROLE relay LOGIN; GRANT CREATE ON SCHEMA public TO relay")
		w.must(err)
		u.Host, u.User = b.proxy.Listen, url.User("relay")
	}
	options := u.Query()
	options.Set("create", "true")
	u.RawQuery = options.Encode()
	b.url = u.String()
	b.received = func() (all []outboxtest.Received) {
		var there bool // the relay makes the table, when it first publishes
		w.must(pool.QueryRow(w.t.Context(), "SELECT to_regclass($1) IS NOT NULL", destination).Scan(&there))
		if !there {
			return nil
		}
		rows, err := pool.Query(w.t.Context(), "SELECT event_id::text, aggregate_id FROM "+destination+" ORDER BY position")
		w.must(err)
		defer rows.Close()
		for rows.Next() {
			r := outboxtest.Received{Destination: destination}
			w.must(rows.Scan(&r.ID, &r.Key))
			all = append(all, r)
		}
		w.must(rows.Err())
		return all
	}
	b.faults["denied"] = func() func() {
		exec := func(sql string) { _, err := pool.Exec(context.WithoutCancel(w.t.Context()), sql); w.must(err) }
		exec("REVOKE INSERT ON " + destination + " FROM relay")
		return func() { exec("GRANT INSERT ON " + destination + " TO relay") }
	}
	return b
}

// openEndpoint has an HTTP server that takes everything.
func openEndpoint(w *world, _ string) *broker {
	w.t.Helper()
	address := freeAddress(w.t)
	server := newChild(w.t, roleEndpoint, address)
	b := &broker{faults: map[string]func() func(){}, server: server, proxy: newProxy(w.t, address),
		unawaited: 64} // an endpoint's concurrency
	file := filepath.Join(w.t.TempDir(), "endpoints.yaml")
	w.must(os.WriteFile(file, fmt.Appendf(nil, "endpoints:\n  - name: %s\n    url: http://%s/\n    secrets: [%s]\n",
		destination, b.proxy.Listen, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="), 0o600))
	b.url = "webhook:" + file + "?allow=private,http&schedule=200ms"
	b.received = func() (all []outboxtest.Received) {
		for _, line := range server.lines() {
			r, _ := arrived([]byte(line), destination)
			all = append(all, r)
		}
		return all
	}
	b.faults["full"], b.faults["denied"] = server.told(w.t, commandFull), server.told(w.t, commandDenied)
	return b
}
