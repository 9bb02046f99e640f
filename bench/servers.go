package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/store/postgres"
)

// servers are the private servers, the clients that everything measured shares, and a subscriber to
// every channel.
type servers struct {
	postgres                      *testenv.Postgres
	redis                         *testenv.Redis
	postgresVersion, redisVersion string

	connections
	subscriber *subscriber

	child *child // whose processor time is counted apart, if there is one
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
	if err = pgmigrations.Up(ctx, url, append(slices.Clone(pgmigrations.Sets), "log")...); err != nil {
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
	if s.subscriber, err = subscribe(ctx, s.client); err != nil {
		return s, err
	}
	return s, s.setup(ctx)
}

func (s *servers) stop() {
	if s.subscriber != nil {
		s.subscriber.close()
	}
	_ = s.end()
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

func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*p))]
}
