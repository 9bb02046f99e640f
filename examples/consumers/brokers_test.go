package consumers

import (
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/sink/kafka"
	"github.com/outboxrelay/outbox/sink/natsjs"
	"github.com/outboxrelay/outbox/sink/pgtable"
	"github.com/outboxrelay/outbox/sink/rabbitmq"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/sink/redisstream"
	"github.com/outboxrelay/outbox/sink/webhook"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// opened is a sink that is closed when the test ends.
func opened[S interface {
	outbox.Sink
	Close() error
}](t *testing.T, sink S, err error) outbox.Sink {
	t.Helper()
	must(t, err)
	t.Cleanup(func() { _ = sink.Close() })
	return sink
}

func redisServer(t *testing.T) (*testenv.Redis, *redis.Client) {
	t.Helper()
	server := testenv.RedisServer(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return server, client
}

func redisPubSub(t *testing.T) broker {
	server, client := redisServer(t)
	sink, err := redispubsub.Open(t.Context(), server.URL(), redispubsub.Config{})
	return broker{sink: opened(t, sink, err), destination: "order.placed", settings: []string{"REDIS_URL=" + server.URL()},
		missed: true, ready: func() bool {
			heard, err := client.PubSubNumSub(t.Context(), "order.placed").Result()
			must(t, err)
			return heard["order.placed"] == 1
		}}
}

func redisStreams(t *testing.T) broker {
	server, client := redisServer(t)
	sink, err := redisstream.Open(t.Context(), "redis+stream://"+server.Addr(), redisstream.Config{Create: true})
	return broker{sink: opened(t, sink, err), destination: "order.placed", settings: []string{"REDIS_URL=" + server.URL()},
		left: func() int {
			groups, err := client.XInfoGroups(t.Context(), "order.placed").Result()
			must(t, err)
			return int(groups[0].Lag + groups[0].Pending)
		}}
}

func natsJetStream(t *testing.T) broker {
	server, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT,
		JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	must(t, err)
	server.Start()
	t.Cleanup(server.Shutdown)
	if !server.ReadyForConnections(tier.Patience()) {
		t.Fatal("no NATS server")
	}
	sink, err := natsjs.Open(t.Context(), server.ClientURL(),
		natsjs.Config{Create: natsjs.Stream{Name: "ORDERS", Subjects: []string{"order.*"}}})
	b := broker{sink: opened(t, sink, err), destination: "order.placed",
		settings: []string{"NATS_URL=" + server.ClientURL()}}
	conn, err := nats.Connect(server.ClientURL())
	must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	must(t, err)
	b.left = func() int {
		consumer, err := js.Consumer(t.Context(), "ORDERS", "shipping")
		must(t, err)
		info, err := consumer.Info(t.Context())
		must(t, err)
		return int(info.NumPending) + info.NumAckPending
	}
	return b
}

func kafkaTopic(t *testing.T) broker {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "order.placed"))
	must(t, err)
	t.Cleanup(cluster.Close)
	brokers := strings.Join(cluster.ListenAddrs(), ",")
	sink, err := kafka.Open(t.Context(), "kafka://"+brokers, kafka.Config{})
	b := broker{sink: opened(t, sink, err), destination: "order.placed", settings: []string{"KAFKA_BROKERS=" + brokers}}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	must(t, err)
	t.Cleanup(client.Close)
	b.left = func() int {
		return int(endOffset(t, client) - committedOffset(t, client))
	}
	return b
}

func endOffset(t *testing.T, client *kgo.Client) int64 {
	t.Helper()
	request := kmsg.NewPtrListOffsetsRequest()
	topic, partition := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	topic.Topic, partition.Timestamp = "order.placed", -1 // the end
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(t.Context(), client)
	must(t, err)
	return answer.Topics[0].Partitions[0].Offset
}

func committedOffset(t *testing.T, client *kgo.Client) int64 {
	t.Helper()
	request := kmsg.NewPtrOffsetFetchRequest()
	group, topic := kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.Partitions = "order.placed", []int32{0}
	group.Group, group.Topics = "shipping", append(group.Topics, topic)
	request.Groups = append(request.Groups, group)
	answer, err := request.RequestWith(t.Context(), client)
	must(t, err)
	return max(0, answer.Groups[0].Topics[0].Partitions[0].Offset) // -1: none
}

func rabbitQueue(t *testing.T) broker {
	server := testenv.RabbitMQServer(t)
	url := server.URL(server.Vhost(t))
	conn, err := amqp.Dial(url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	must(t, err)
	queue, err := channel.QueueDeclare("orders", true, false, false, false, nil)
	must(t, err)
	sink, err := rabbitmq.Open(t.Context(), url, rabbitmq.Config{})
	return broker{sink: opened(t, sink, err), destination: queue.Name, settings: []string{"RABBITMQ_URL=" + url},
		left: func() int { // but for those that a consumer holds
			queue, err := channel.QueueDeclarePassive("orders", true, false, false, false, nil)
			must(t, err)
			return queue.Messages
		}}
}

func webhookEndpoint(t *testing.T) broker {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	endpoints := webhook.List{{Name: "shipping", URL: "http://" + address, Secrets: []webhook.Secret{secret}}}
	sink, err := webhook.New(endpoints, webhook.Config{AllowPrivate: true, AllowHTTP: true})
	return broker{sink: opened(t, sink, err), destination: "shipping",
		settings: []string{"LISTEN=" + address, "WEBHOOK_SECRET=" + secret},
		missed:   true, ready: func() bool {
			sink.Enable("shipping") // and does not rest after the failures of the kill
			conn, err := net.Dial("tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		}}
}

func postgresTable(t *testing.T) broker {
	url := testenv.Database(t)
	db, err := pgxpool.New(t.Context(), url)
	must(t, err)
	t.Cleanup(db.Close)
	table, err := pgtable.CreateTable("order_events")
	must(t, err)
	_, err = db.Exec(t.Context(), table)
	must(t, err)
	sink, err := pgtable.Open(t.Context(), url, pgtable.Config{})
	b := broker{sink: opened(t, sink, err), destination: "order_events", database: url}
	b.left = func() (rows int) {
		must(t, db.QueryRow(t.Context(), "SELECT count(*) FROM order_events").Scan(&rows))
		return rows
	}
	return b
}
