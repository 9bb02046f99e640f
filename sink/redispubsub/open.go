package redispubsub

import (
	"context"

	"github.com/redis/go-redis/v9/logging"

	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/sink"
)

// urls are those of this package.
var urls redisscript.Kind

// Driver opens sinks by the URLs that Open takes. It turns off what go-redis writes to stderr by
// itself, into the middle of a log: what those lines say comes back as errors too.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes:   urls.Schemes(),
		Example:   "redis://user:password@host:6379/0, rediss:// for TLS, unix:// for a socket",
		Variables: []string{"REDIS_URL"},
		Open: func(ctx context.Context, url string, o sink.Options) (sink.Sink, error) {
			logging.Disable()
			return Open(ctx, url, Config{Window: o.Window, Prefix: o.Prefix})
		},
		Check: func(url string) error {
			_, err := urls.Parse(url)
			return err
		},
		Plaintext: urls.Plaintext, Encrypted: urls.Encrypted, Hint: redisscript.Hint,
		Subscribe: func(url string, o sink.Options) (sink.Subscriber, error) {
			logging.Disable()
			return OpenListener(url, ListenerConfig{Logger: o.Logger})
		},
		Tail: tail,
	}
}

// Open connects to the Redis that url names and returns a Sink that Close closes:
//
//	redis://user:password@host:6379/0         a server, or any node of a Cluster
//	rediss://…                                the same with TLS
//	redis://user:password@host1:6379,host2    several nodes of a Cluster
//	unix://user:password@/path/to/redis.sock
//
// go-redis's query parameters (?read_timeout=2s&pool_size=4) are understood; its retries are off
// whatever they say. A server that cannot be reached is an error of class outbox.ClassUnavailable.
// One that refuses the user, or for which nobody vouches, is one of class outbox.ClassPermanent.
//
// A call that fails although the server takes others is sent again in parts, down to the delivery
// that fails alone. That is the delivery's own error and can be retried; so is a channel that the
// user may not write to. Where the server takes nothing, the error is of class
// outbox.ClassUnavailable. Either may leave deliveries published: they are answered as duplicates
// when they come again within the window.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	server, err := urls.Parse(url)
	p, err := redisscript.Open(ctx, server, cfg.shared(), publish(cfg), err)
	if err != nil {
		return nil, err
	}
	return &Sink{p}, nil
}
