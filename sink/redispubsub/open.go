package redispubsub

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxrelay/outbox/internal/sink/redisscript"
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
//
// A call that fails although the server takes others is sent again in parts, down to the delivery that fails alone.
// That is the delivery's own error and can be retried; so is a channel that the user may not write to. Where the server
// takes nothing, the error is of class outbox.ClassUnavailable. Either may leave deliveries published: they are
// answered as duplicates when they come again within the window.
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
	s := newPublisher(client, cfg)
	s.Own(server.Password())
	return &Sink{s}, nil
}
