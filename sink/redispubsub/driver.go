package redispubsub

import (
	"context"

	"github.com/redis/go-redis/v9/logging"

	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes. It turns off what go-redis writes to stderr by itself, into the
// middle of a log: what those lines say comes back as errors too.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes:   []string{"redis", "rediss", "unix"},
		Example:   "redis://user:password@host:6379/0, rediss:// for TLS, unix:// for a socket",
		Variables: []string{"REDIS_URL"},
		Open:      openByURL, Check: redisscript.CheckURL, Mask: sinkurl.Mask, Plaintext: redisscript.Plaintext,
		Hint:      redisscript.Hint,
		Subscribe: subscribeByURL, Tail: tail,
	}
}

func openByURL(ctx context.Context, url string, o sink.Options) (sink.Sink, error) {
	logging.Disable()
	s, err := Open(ctx, url, Config{Window: o.Window, Prefix: o.Prefix})
	if err != nil {
		return nil, redisscript.Lasting(err)
	}
	return s, nil
}

func subscribeByURL(url string, o sink.Options) (sink.Subscriber, error) {
	logging.Disable()
	return OpenListener(url, ListenerConfig{Logger: o.Logger})
}
