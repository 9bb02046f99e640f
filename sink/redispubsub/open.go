package redispubsub

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxrelay/outbox/internal/redisscript"
)

// Open connects to the Redis that url names and returns a Sink that Close closes:
//
//	redis://user:password@host:6379/0         a server, or any node of a Cluster
//	rediss://…                                the same with TLS
//	redis://user:password@host1:6379,host2    several nodes of a Cluster
//	unix://user:password@/path/to/redis.sock
//
// go-redis's query parameters (?read_timeout=2s&pool_size=4) are understood; its retries are off whatever they say.
// A server that cannot be reached or refuses the user is an error of class outbox.ClassUnavailable.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	cfg, err := cfg.withDefaults()
	server, urlErr := redisscript.Parse(url, cfg.TLS)
	if err := errors.Join(err, urlErr); err != nil {
		return nil, fmt.Errorf("configure Redis sink: %w", err)
	}
	client, err := server.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s := newSink(client, cfg)
	s.publisher.Own(server.Password())
	return s, nil
}
