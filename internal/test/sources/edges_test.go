package sources

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/source"
	"github.com/outboxrelay/outbox/source/kafka"
	"github.com/outboxrelay/outbox/source/natsjs"
	"github.com/outboxrelay/outbox/source/rabbitmq"
	"github.com/outboxrelay/outbox/source/redisstream"
	"github.com/outboxrelay/outbox/source/webhook"
	"github.com/outboxrelay/outbox/store/postgres"
)

// Entries that nobody has acknowledged come to any process before new ones, once it is time, and
// one that was trimmed meanwhile says so.
func TestRedisEntries(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: testenv.RedisServer(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	add := func(fields ...any) {
		must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: "orders", Values: fields}).Err())
	}
	open := func(wait time.Duration) source.Source {
		s, err := redisstream.New(client,
			redisstream.Config{Stream: "orders", Group: "billing", Batch: 2, AckWait: wait})
		must(t, err)
		return s
	}
	receive := func() source.Batch {
		batch, err := open(100 * time.Millisecond).Receive(t.Context())
		must(t, err)
		return batch
	}
	for _, body := range []string{"1", "2", "3"} {
		add("event", body)
	}
	if got := receive(); len(got.Messages) != 2 || string(got.Messages[1].Body) != "2" {
		t.Fatalf("received %+v", got.Messages)
	}
	must(t, client.XTrimMaxLen(t.Context(), "orders", 2).Err())
	got := receive()
	if len(got.Messages) != 2 || !strings.Contains(got.Messages[0].Problem, "trimmed") ||
		string(got.Messages[1].Body) != "2" || got.Messages[0].Time.IsZero() {
		t.Fatalf("what was not acknowledged came as %+v", got.Messages)
	}
	must(t, got.Ack(t.Context()))
	add("other", "field")
	patient := open(time.Hour)
	for range 2 { // what is its own it gets again at once
		batch, err := patient.Receive(t.Context())
		must(t, err)
		if len(batch.Messages) != 2 {
			t.Fatalf("received %+v", batch.Messages)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if batch, err := open(time.Hour).Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("beside a process that has a batch: %+v, error %v", batch.Messages, err)
	}
	got = receive()
	if len(got.Messages) != 2 || string(got.Messages[0].Body) != "3" || got.Messages[1].Problem == "" {
		t.Fatalf("received %+v", got.Messages)
	}
}

// What a consumer of NATS had received when it was stopped comes to another at once, and in its
// order.
func TestNATSStops(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	broker := natsPartitions(t)
	conn, err := nats.Connect(broker.address)
	must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	must(t, err)
	for _, body := range []string{"1", "2"} {
		_, err = js.Publish(t.Context(), "order.placed.a", []byte(body))
		must(t, err)
	}
	receive := func(stopped bool) string {
		s, err := natsjs.New(js, natsjs.Config{Stream: "ORDERS", Durable: "billing", Subjects: []string{"order.>"},
			AckWait: time.Hour})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), tier.Patience())
		defer s.Close()
		defer cancel()
		batch, err := s.Receive(ctx)
		must(t, err)
		if !stopped {
			must(t, batch.Ack(ctx))
		}
		return string(batch.Messages[0].Body)
	}
	for _, want := range []struct {
		body    string
		stopped bool
	}{{"1", true}, {"1", false}, {"2", true}, {"2", false}} {
		if got := receive(want.stopped); got != want.body {
			t.Fatalf("received %s, want %s", got, want.body)
		}
	}
}

// What is configured wrongly is said at once.
func TestConfigurations(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, open := range map[string]func() error{
		"Brokers": func() error { _, err := kafka.New(kafka.Config{}); return err },
		"Durable": func() error { _, err := natsjs.New(nil, natsjs.Config{Stream: "S"}); return err },
		"Partitions of": func() error {
			one := []string{"order.*"}
			_, err := natsjs.New(nil, natsjs.Config{Stream: "S", Durable: "d", Subjects: one, Partitions: one})
			return err
		},
		"Group": func() error { _, err := redisstream.New(nil, redisstream.Config{}); return err },
		"Queue": func() error { _, err := rabbitmq.New(rabbitmq.Config{}); return err },
		"none of AMQP": func() error {
			_, err := rabbitmq.New(rabbitmq.Config{URL: "amqp://a:hunter2@%", Queue: "q"})
			return err
		},
		"Secrets are": func() error { _, err := webhook.New(webhook.Config{}); return err },
		"Secrets[0]":  func() error { _, err := webhook.New(webhook.Config{Secrets: []string{"whsec_"}}); return err },
		"Secrets[1]": func() error {
			_, err := webhook.New(webhook.Config{Secrets: []string{secret, "hunter2"}})
			return err
		},
		`Name is "a b"`: func() error { return runs(t, source.Config{Name: "a b"}) },
		"retention":     func() error { return runs(t, source.Config{Name: "a", Window: 1, Copies: weekly}) },
		"outbox_inbox":  func() error { return runs(t, source.Config{Name: "a"}) }, // an empty database
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("want %q said, and no secret: %v", name, err)
		}
	}
}

var weekly = map[string]time.Duration{"retention": 7 * 24 * time.Hour}

func runs(t *testing.T, cfg source.Config) error {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t))
	must(t, err)
	defer pool.Close()
	var from source.Source
	return source.Run(t.Context(), from, postgres.Transactions(pool),
		func(context.Context, pgx.Tx, ...outbox.Event) error { return nil }, cfg)
}
