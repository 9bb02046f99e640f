package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink/kafka"
	"github.com/outboxrelay/outbox/sink/natsjs"
	"github.com/outboxrelay/outbox/sink/pgtable"
	"github.com/outboxrelay/outbox/sink/rabbitmq"
	"github.com/outboxrelay/outbox/sink/redisstream"
	"github.com/outboxrelay/outbox/sink/webhook"
)

// place is the name of every destination: channel, stream, subject, topic, queue, table and
// endpoint.
const place = "bench"

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="

// openTargets starts the brokers that are not there yet and opens a sink on each. stop undoes it,
// after an error too.
func openTargets(ctx context.Context, s *servers) (targets []target, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range slices.Backward(stops) {
			f()
		}
	}
	for _, open := range []func(context.Context, *servers, func(func())) (target, error){
		openPubSub, openStream, openNATS, openKafka, openRabbit, openTable, openWebhook,
	} {
		to, err := open(ctx, s, func(f func()) { stops = append(stops, f) })
		if err != nil {
			return nil, stop, err
		}
		targets = append(targets, to)
	}
	return targets, stop, nil
}

func openPubSub(_ context.Context, s *servers, _ func(func())) (target, error) {
	from := s.subscriber.count.Load()
	return target{name: "Redis Pub/Sub, one subscriber", sink: s.sink,
		clear: func(ctx context.Context) error {
			from = s.subscriber.count.Load()
			return s.client.FlushAll(ctx).Err()
		},
		arrived: func(context.Context) (int, error) { return int(s.subscriber.count.Load() - from), nil },
		publish: func(ctx context.Context, all []message) error {
			return pipelined(ctx, s.client, all, func(pipe redis.Pipeliner, m message) { pipe.Publish(ctx, place, m.body) })
		},
	}, nil
}

func openStream(_ context.Context, s *servers, _ func(func())) (target, error) {
	sink, err := redisstream.New(s.client, redisstream.Config{Create: true})
	return target{name: "Redis Streams", sink: sink,
		clear: func(ctx context.Context) error { return s.client.FlushAll(ctx).Err() },
		arrived: func(ctx context.Context) (int, error) {
			n, err := s.client.XLen(ctx, place).Result()
			return int(n), err
		},
		publish: func(ctx context.Context, all []message) error {
			return pipelined(ctx, s.client, all, func(pipe redis.Pipeliner, m message) {
				pipe.XAdd(ctx, &redis.XAddArgs{Stream: place, Values: []any{"event", m.body}})
			})
		},
	}, err
}

// pipelined sends a relay's batch in one trip.
func pipelined(ctx context.Context, client *redis.Client, all []message, add func(redis.Pipeliner, message)) error {
	for some := range slices.Chunk(all, batch) {
		pipe := client.Pipeline()
		for _, m := range some {
			add(pipe, m)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func openNATS(ctx context.Context, _ *servers, later func(func())) (target, error) {
	server, err := startBroker(ctx, "nats")
	if err != nil {
		return target{}, err
	}
	later(server.stop)
	sink, err := natsjs.Open(ctx, server.url,
		natsjs.Config{Create: natsjs.Stream{Name: "BENCH", Subjects: []string{place}}})
	if err != nil {
		return target{}, err
	}
	later(func() { _ = sink.Close() })
	conn, err := nats.Connect(server.url)
	if err != nil {
		return target{}, err
	}
	later(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		return target{}, err
	}
	stream, err := js.Stream(ctx, "BENCH")
	return target{name: "NATS JetStream, stream in files", sink: sink,
		clear: func(ctx context.Context) error { return stream.Purge(ctx) },
		arrived: func(ctx context.Context) (int, error) {
			info, err := stream.Info(ctx)
			if err != nil {
				return 0, err
			}
			return int(info.State.Msgs), nil
		},
		publish: func(ctx context.Context, all []message) error {
			futures := make([]jetstream.PubAckFuture, len(all))
			for i, m := range all { // it waits where 4000 are not acknowledged
				var err error
				if futures[i], err = js.PublishAsync(place, m.body, jetstream.WithMsgID(m.id),
					jetstream.WithStallWait(drainLimit)); err != nil {
					return err
				}
			}
			for _, f := range futures {
				select {
				case <-f.Ok():
				case err := <-f.Err():
					return err
				}
			}
			return nil
		},
	}, err
}

func openKafka(ctx context.Context, _ *servers, later func(func())) (target, error) {
	server, err := startBroker(ctx, "kafka")
	if err != nil {
		return target{}, err
	}
	later(server.stop)
	sink, err := kafka.Open(ctx, "kafka://"+server.url,
		kafka.Config{Create: &kafka.Creation{Partitions: 12, Replication: 1}})
	if err != nil {
		return target{}, err
	}
	later(func() { _ = sink.Close() })
	client, err := kgo.NewClient(kgo.SeedBrokers(server.url), kgo.AllowAutoTopicCreation())
	if err != nil {
		return target{}, err
	}
	later(client.Close)
	admin := kadm.NewClient(client)
	first, err := newMessages(1, 1)
	if err == nil { // which makes the topic
		err = sink.Publish(ctx, []outbox.Delivery{*first[0].event})[0].Err
	}
	return target{name: "Kafka (kfake), 12 partitions", sink: sink,
		clear:   func(ctx context.Context) error { return emptyTopic(ctx, admin) },
		arrived: func(ctx context.Context) (int, error) { return records(ctx, admin) },
		publish: func(ctx context.Context, all []message) error {
			var acknowledged kgo.FirstErrPromise
			for _, m := range all { // it waits where 10,000 are not acknowledged
				client.Produce(ctx, &kgo.Record{Topic: place, Key: []byte(m.key), Value: m.body}, acknowledged.Promise())
			}
			return acknowledged.Err()
		},
	}, err
}

// records is how many there are in the topic.
func records(ctx context.Context, admin *kadm.Client) (n int, err error) {
	starts, err := admin.ListStartOffsets(ctx, place)
	if err != nil {
		return 0, err
	}
	ends, err := admin.ListEndOffsets(ctx, place)
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(place, end.Partition)
		n += int(end.Offset - start.Offset)
	})
	return n, errors.Join(err, starts.Error(), ends.Error())
}

func emptyTopic(ctx context.Context, admin *kadm.Client) error {
	ends, err := admin.ListEndOffsets(ctx, place)
	if err != nil {
		return err
	}
	deleted, err := admin.DeleteRecords(ctx, ends.Offsets())
	return errors.Join(err, deleted.Error())
}

func openRabbit(ctx context.Context, _ *servers, later func(func())) (target, error) {
	server, err := testenv.StartRabbitMQ(ctx)
	if err != nil {
		return target{}, err
	}
	later(func() { _ = server.Stop() })
	conn, err := amqp.Dial(server.URL("%2F"))
	if err != nil {
		return target{}, err
	}
	later(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		return target{}, err
	}
	if err := channel.Confirm(false); err != nil {
		return target{}, err
	}
	if _, err := channel.QueueDeclare(place, true, false, false, false, nil); err != nil {
		return target{}, err
	}
	sink, err := rabbitmq.Open(ctx, server.URL("%2F"), rabbitmq.Config{})
	if err != nil {
		return target{}, err
	}
	later(func() { _ = sink.Close() })
	return target{name: "RabbitMQ, durable classic queue", sink: sink, share: 5,
		clear: func(context.Context) error { _, err := channel.QueuePurge(place, false); return err },
		arrived: func(context.Context) (int, error) {
			queue, err := channel.QueueDeclarePassive(place, true, false, false, false, nil)
			return queue.Messages, err
		},
		publish: func(_ context.Context, all []message) error {
			for some := range slices.Chunk(all, batch) {
				confirms := make([]*amqp.DeferredConfirmation, len(some))
				for i, m := range some {
					var err error
					if confirms[i], err = channel.PublishWithDeferredConfirm("", place, true, false,
						amqp.Publishing{Body: m.body, DeliveryMode: amqp.Persistent, MessageId: m.id}); err != nil {
						return err
					}
				}
				for _, confirm := range confirms {
					if !confirm.Wait() {
						return errors.New("RabbitMQ has refused a message")
					}
				}
			}
			return nil
		},
	}, nil
}

// openTable has the receiving database on the server of the outbox: both share its processor time,
// as they would here with two servers.
func openTable(ctx context.Context, s *servers, later func(func())) (target, error) {
	if err := s.exec(ctx, "CREATE DATABASE receiver"); err != nil {
		return target{}, err
	}
	db, err := pgxpool.New(ctx, s.postgres.URL("receiver"))
	if err != nil {
		return target{}, err
	}
	later(db.Close)
	create, err := pgtable.CreateTable(place)
	if err != nil {
		return target{}, err
	}
	if _, err := db.Exec(ctx, create); err != nil {
		return target{}, err
	}
	sink, err := pgtable.Open(ctx, s.postgres.URL("receiver"), pgtable.Config{})
	if err != nil {
		return target{}, err
	}
	later(func() { _ = sink.Close() })
	return target{name: "PostgreSQL table", sink: sink, share: 2,
		clear: func(ctx context.Context) error { _, err := db.Exec(ctx, "TRUNCATE "+place); return err },
		arrived: func(ctx context.Context) (n int, err error) {
			return n, db.QueryRow(ctx, "SELECT count(*) FROM "+place).Scan(&n)
		},
		publish: func(ctx context.Context, all []message) error {
			for some := range slices.Chunk(all, batch) {
				inserts := new(pgx.Batch) // one transaction in one trip
				for _, m := range some {
					d := m.event
					inserts.Queue(`INSERT INTO bench (event_id, origin, generation, topic, aggregate_type, aggregate_id, tenant_id, source, occurred_at, payload)
						VALUES ($1, 0, 0, $2, $3, $4, $5, $6, $7, $8)`, d.ID, d.Topic, d.AggregateType, d.AggregateID, d.TenantID,
						d.Source, d.OccurredAt, d.Payload)
				}
				if err := db.SendBatch(ctx, inserts).Close(); err != nil {
					return err
				}
			}
			return nil
		},
	}, nil
}

func openWebhook(_ context.Context, _ *servers, later func(func())) (target, error) {
	var posted atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		posted.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	later(server.Close)
	sink, err := webhook.New(webhook.List{{Name: place, URL: server.URL, Secrets: []webhook.Secret{webhookSecret}}},
		webhook.Config{AllowPrivate: true, AllowHTTP: true, Logger: quiet})
	if err != nil {
		return target{}, err
	}
	later(func() { _ = sink.Close() })
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	later(client.CloseIdleConnections)
	return target{name: "webhook, 64 requests at a time", sink: sink, share: 10,
		clear:   func(context.Context) error { posted.Store(0); return nil },
		arrived: func(context.Context) (int, error) { return int(posted.Load()), nil },
		publish: func(ctx context.Context, all []message) error { return post(ctx, client, server.URL, all) },
	}, nil
}

// post sends messages over 64 connections, unsigned.
func post(ctx context.Context, client *http.Client, url string, all []message) error {
	lines, ctx := errgroup.WithContext(ctx)
	for line := range 64 {
		lines.Go(func() error {
			for i := line; i < len(all) && ctx.Err() == nil; i += 64 {
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(all[i].body))
				if err != nil {
					return err
				}
				answer, err := client.Do(request)
				if err != nil {
					return err
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
			return nil
		})
	}
	return lines.Wait()
}
