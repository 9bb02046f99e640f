package readers

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	watermillredis "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/kafka"
	"github.com/outboxrelay/outbox/sink/natsjs"
	"github.com/outboxrelay/outbox/sink/rabbitmq"
	"github.com/outboxrelay/outbox/sink/redisstream"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Each subscriber is as Watermill's documentation makes it, with its default marshaller (for NATS
// the one of headers).
func TestWatermill(t *testing.T) {
	for name, broker := range map[string]func(*testing.T) (sink.Sink, message.Subscriber){
		"Redis Streams": overRedis, "Kafka": overKafka, "NATS": overNATS, "RabbitMQ": overRabbitMQ,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, subscriber := broker(t)
			t.Cleanup(func() { _ = subscriber.Close() })
			messages, err := subscriber.Subscribe(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			batch := deliveries(t, "orders", records)
			send(t, s, batch)
			for i := range batch {
				d := &batch[i]
				select {
				case m := <-messages:
					if m == nil {
						t.Fatal("the subscription has ended")
					}
					m.Ack()
					if m.UUID != d.ID.String() || string(m.Payload) != string(d.Payload) {
						t.Fatalf("message %d is %s %s, want %s %s", i, m.UUID, m.Payload, d.ID, d.Payload)
					}
					for name, want := range map[string]string{"ce_type": "order.placed", "ce_subject": "Order/42", "ce_tenantid": "acme",
						"correlation_id": "c-1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
						if got := m.Metadata.Get(name); got != want {
							t.Errorf("%s is %q, want %q", name, got, want)
						}
					}
				case <-time.After(patience):
					t.Fatalf("%d of %d messages", i, len(batch))
				}
			}
		})
	}
}

func overRedis(t *testing.T) (sink.Sink, message.Subscriber) {
	server := testenv.RedisServer(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	subscriber, err := watermillredis.NewSubscriber(watermillredis.SubscriberConfig{Client: client, ConsumerGroup: "shop"},
		watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, redisstream.Driver(), "redis+stream://"+server.Addr()+"?create=true&cloudevents=watermill"), subscriber
}

func overKafka(t *testing.T) (sink.Sink, message.Subscriber) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	config := watermillkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest // the group may begin after the records are there
	subscriber, err := watermillkafka.NewSubscriber(watermillkafka.SubscriberConfig{Brokers: cluster.ListenAddrs(),
		Unmarshaler: watermillkafka.DefaultMarshaler{}, OverwriteSaramaConfig: config, ConsumerGroup: "shop"},
		watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, kafka.Driver(), "kafka://"+cluster.ListenAddrs()[0]+"?cloudevents=watermill"), subscriber
}

func overNATS(t *testing.T) (sink.Sink, message.Subscriber) {
	server, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	if !server.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	s := open(t, natsjs.Driver(), server.ClientURL()+"?create=orders&subjects=orders&cloudevents=watermill")
	subscriber, err := watermillnats.NewSubscriber(watermillnats.SubscriberConfig{URL: server.ClientURL(),
		Unmarshaler: &watermillnats.NATSMarshaler{}, JetStream: watermillnats.JetStreamConfig{
			SubscribeOptions: []nats.SubOpt{nats.DeliverAll(), nats.AckExplicit()}}}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	return s, subscriber
}

func overRabbitMQ(t *testing.T) (sink.Sink, message.Subscriber) {
	server := testenv.RabbitMQServer(t)
	url := server.URL(server.Vhost(t))
	subscriber, err := watermillamqp.NewSubscriber(watermillamqp.NewDurableQueueConfig(url), watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, rabbitmq.Driver(), url+"?cloudevents=watermill"), subscriber
}
