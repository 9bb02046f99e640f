package sources

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	kafkasink "github.com/outboxrelay/outbox/sink/kafka"
	natssink "github.com/outboxrelay/outbox/sink/natsjs"
	rabbitsink "github.com/outboxrelay/outbox/sink/rabbitmq"
	redissink "github.com/outboxrelay/outbox/sink/redisstream"
	webhooksink "github.com/outboxrelay/outbox/sink/webhook"
	"github.com/outboxrelay/outbox/source/kafka"
	"github.com/outboxrelay/outbox/source/natsjs"
	"github.com/outboxrelay/outbox/source/rabbitmq"
	"github.com/outboxrelay/outbox/source/redisstream"
	"github.com/outboxrelay/outbox/source/webhook"
)

// brokers are the servers.
var brokers = map[string]func(*testing.T) broker{"kafka": kafkaBroker, "nats": natsBroker,
	"nats-partitions": natsPartitions, "redis": redisBroker, "rabbitmq": rabbitBroker, "webhook": webhookEndpoint}

// sinks are what the producer's relay opens at an address.
var sinks = map[string]func(ctx context.Context, address string) (outbox.Sink, error){"kafka": sendKafka,
	"nats": sendNATS, "nats-partitions": sendNATSByKey, "redis": sendRedis, "rabbitmq": sendRabbit,
	"webhook": sendWebhook}

// ways are where the producer's relay sends events to, if not to their topic.
var ways = map[string]string{"nats-partitions": "{topic}.{key}"}

// sources are what a consumer's process opens at an address.
var sources = map[string]func(address string) (opened, error){"kafka": openKafka, "nats": openNATS,
	"nats-partitions": openNATSPartitions, "redis": openRedis, "rabbitmq": openRabbit, "webhook": openWebhook}

func kafkaBroker(t *testing.T) broker {
	port, dir := sinktest.FreePort(t), t.TempDir()
	address := "127.0.0.1:" + port
	var p *process
	up := func() error {
		p = run(t, kafkaPort+"="+port, kafkaDir+"="+dir)
		until(t, "the broker listens", func() bool { return listens(address) })
		return nil
	}
	must(t, up())
	return broker{address, func() error {
		err := p.cmd.Process.Kill()
		<-p.done
		return err
	}, up}
}

func sendKafka(ctx context.Context, address string) (outbox.Sink, error) {
	return kafkasink.Open(ctx, "kafka://"+address, kafkasink.Config{Binary: true})
}

func openKafka(address string) (opened, error) {
	var options []kgo.Opt
	if name := os.Getenv(member); name != "" { // it comes back without waiting for the end of its session
		options = append(options, kgo.InstanceID(name))
	}
	s, err := kafka.New(kafka.Config{Brokers: []string{address}, Group: "billing", Topics: []string{destination},
		Options: options})
	if err != nil {
		return opened{}, err
	}
	return opened{s, s.Close}, nil
}

func natsBroker(t *testing.T) broker {
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	return broker{server.URL(), server.Kill, server.Restart}
}

func sendNATS(ctx context.Context, address string) (outbox.Sink, error) {
	return natssink.Open(ctx, address, natssink.Config{Binary: true,
		Create: natssink.Stream{Name: "ORDERS", Subjects: []string{"order.*"}}})
}

func openNATS(address string) (opened, error) { return openConsumer(address, natsjs.Config{}) }

func openConsumer(address string, cfg natsjs.Config) (opened, error) {
	conn, err := nats.Connect(address, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return opened{}, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return opened{}, err
	}
	cfg.Stream, cfg.Durable, cfg.AckWait = "ORDERS", "billing", time.Second
	s, err := natsjs.New(js, cfg)
	return opened{s, func() { s.Close(); conn.Close() }}, err
}

// partitions are subjects that a stream spreads keys over.
const partitions = 128

func natsPartitions(t *testing.T) broker {
	b := natsBroker(t)
	conn, err := nats.Connect(b.address)
	must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"order.>"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "order.placed.*",
			Destination: fmt.Sprintf("order.{{partition(%d,1)}}.{{wildcard(1)}}", partitions)}})
	must(t, err)
	return b
}

func sendNATSByKey(ctx context.Context, address string) (outbox.Sink, error) {
	return natssink.Open(ctx, address, natssink.Config{Binary: true})
}

func openNATSPartitions(address string) (opened, error) {
	var subjects []string
	for i := range partitions {
		subjects = append(subjects, fmt.Sprintf("order.%d.*", i))
	}
	return openConsumer(address, natsjs.Config{Partitions: subjects})
}

func redisBroker(t *testing.T) broker {
	server := testenv.RedisServerWith(t, testenv.RedisConfig{Args: []string{"--appendonly", "yes",
		"--appendfsync", "always"}})
	return broker{server.Addr(), server.Kill, server.Restart}
}

func sendRedis(ctx context.Context, address string) (outbox.Sink, error) {
	return redissink.Open(ctx, "redis+stream://"+address, redissink.Config{Create: true})
}

func openRedis(address string) (opened, error) {
	client := redis.NewClient(&redis.Options{Addr: address})
	s, err := redisstream.New(client, redisstream.Config{Stream: destination, Group: "billing",
		AckWait: time.Second})
	return opened{s, func() { _ = client.Close() }}, err
}

func rabbitBroker(t *testing.T) broker {
	server := testenv.RabbitMQServer(t)
	url := server.URL(server.Vhost(t))
	conn, err := amqp.Dial(url)
	must(t, err)
	channel, err := conn.Channel()
	must(t, err)
	_, err = channel.QueueDeclare(destination, true, false, false, false, nil)
	must(t, err)
	must(t, conn.Close())
	return broker{url, server.Kill, server.Restart}
}

func sendRabbit(ctx context.Context, address string) (outbox.Sink, error) {
	return rabbitsink.Open(ctx, address, rabbitsink.Config{})
}

func openRabbit(address string) (opened, error) {
	s, err := rabbitmq.New(rabbitmq.Config{URL: address, Queue: destination})
	if err != nil {
		return opened{}, err
	}
	return opened{s, s.Close}, nil
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="

func webhookEndpoint(t *testing.T) broker {
	return broker{address: "127.0.0.1:" + sinktest.FreePort(t)}
}

func sendWebhook(_ context.Context, address string) (outbox.Sink, error) {
	endpoints := webhooksink.List{{Name: destination, URL: "http://" + address, Concurrency: 256,
		Secrets: []webhooksink.Secret{secret}}}
	return webhooksink.New(endpoints, webhooksink.Config{AllowPrivate: true, AllowHTTP: true,
		Schedule: []time.Duration{100 * time.Millisecond}})
}

func openWebhook(address string) (opened, error) {
	other := "whsec_" + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	s, err := webhook.New(webhook.Config{Secrets: []string{other, secret}})
	if err != nil {
		return opened{}, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return opened{}, err
	}
	server := http.Server{Handler: s, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }() // until the process ends
	return opened{s, func() { _ = server.Close() }}, nil
}

func listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
