package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/pgmigrations"
	"github.com/outboxrelay/outbox/internal/testenv"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/store/postgres"
)

// servers are the private servers, the clients that everything measured shares, and a subscriber to every channel.
type servers struct {
	postgres                      *testenv.Postgres
	redis                         *testenv.Redis
	postgresVersion, redisVersion string

	connections
	subscriber *subscriber

	nats  *broker // of sinks only
	child *child  // whose processor time is counted apart, if there is one

	besides *servers // the same with the database of all sides
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func startServers(ctx context.Context) (s *servers, err error) {
	s = &servers{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.postgres, err = testenv.StartPostgres(ctx,
		testenv.PostgresConfig{Fsync: true, Settings: map[string]string{"max_wal_size": "4GB"}}); err != nil {
		return s, err
	}
	if s.redis, err = testenv.StartRedis(ctx, testenv.RedisConfig{}); err != nil {
		return s, err
	}
	url := s.postgres.URL("postgres")
	if err = pgmigrations.Up(ctx, url, pgmigrations.Sets...); err != nil {
		return s, err
	}
	if s.connections, err = newConnections(ctx, url, s.redis.Socket()); err != nil {
		return s, err
	}
	if err = s.app.QueryRow(ctx, "SHOW server_version").Scan(&s.postgresVersion); err != nil {
		return s, err
	}
	info, err := s.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return s, err
	}
	s.redisVersion = info["Server"]["redis_version"]
	s.subscriber, err = subscribe(ctx, s.client)
	return s, err
}

func (s *servers) stop() {
	if s.subscriber != nil {
		s.subscriber.close()
	}
	if s.besides != nil {
		_ = s.besides.end()
		s.besides.close()
	}
	s.close()
	if s.redis != nil {
		_ = s.redis.Stop()
	}
	if s.postgres != nil {
		_ = s.postgres.Stop()
	}
}

// connections are the clients of one database and of Redis.
type connections struct {
	url    string
	relay  *postgres.DB  // relay sessions
	app    *pgxpool.Pool // what an application would use
	client *redis.Client
	sink   sink.Sink
}

// newConnections returns what it has opened with an error too, to be closed.
func newConnections(ctx context.Context, url, socket string) (c connections, err error) {
	c.url = url
	if c.relay, err = postgres.Connect(ctx, url, postgres.Config{Conns: 7}); err != nil {
		return c, err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return c, errors.New("parse database URL")
	}
	cfg.MaxConns = 20
	if c.app, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return c, err
	}
	c.client = redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1})
	c.sink, err = redispubsub.New(c.client, redispubsub.Config{})
	return c, err
}

func (c connections) close() {
	if c.client != nil {
		_ = c.client.Close()
	}
	if c.relay != nil {
		c.relay.Close()
	}
	if c.app != nil {
		c.app.Close()
	}
}

// exec runs statements one after the other, each in a transaction of its own.
func (s *servers) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := s.app.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", strings.Fields(sql)[0:3], err)
		}
	}
	return nil
}

// subscriber counts what arrives; handle, if set, sees each message in the order of arrival.
type subscriber struct {
	ps     *redis.PubSub
	count  atomic.Int64
	handle atomic.Pointer[func(channel, payload string, at time.Time)]
	done   chan struct{}
}

func subscribe(ctx context.Context, client *redis.Client) (*subscriber, error) {
	if err := client.ConfigSet(ctx, "client-output-buffer-limit", "pubsub 0 0 0").Err(); err != nil {
		return nil, err
	}
	s := &subscriber{ps: client.PSubscribe(ctx, "*"), done: make(chan struct{})}
	if _, err := s.ps.Receive(ctx); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		for {
			got, err := s.ps.Receive(ctx)
			if err != nil {
				return
			}
			if m, ok := got.(*redis.Message); ok {
				if h := s.handle.Load(); h != nil {
					(*h)(m.Channel, m.Payload, time.Now())
				}
				s.count.Add(1)
			}
		}
	}()
	return s, nil
}

func (s *subscriber) close() {
	_ = s.ps.Close()
	<-s.done
}

// wait returns once n messages have come since the count was from.
func (s *subscriber) wait(ctx context.Context, from int64, n int) error {
	deadline := time.Now().Add(2 * time.Minute)
	for s.count.Load() < from+int64(n) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d messages arrived in two minutes", s.count.Load()-from, n)
		}
		time.Sleep(200 * time.Microsecond)
	}
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*p))]
}
