package redisstream

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9/logging"

	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes. It turns off what go-redis writes to stderr by itself, into the
// middle of a log: what those lines say comes back as errors too.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes: []string{"redis+stream", "rediss+stream", "unix+stream"},
		Example: "redis+stream://user:password@host:6379/0?maxlen=1000000, rediss+stream:// for TLS, unix+stream:// for " +
			"a socket",
		Open: openByURL, Check: checkURL, Mask: sinkurl.Mask, Plaintext: plaintext, Hint: redisscript.Hint,
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

func checkURL(url string) error {
	var cfg Config
	base, err := parse(url, &cfg)
	if err != nil {
		return err
	}
	if _, err := cfg.withDefaults(); err != nil {
		return err
	}
	return own(redisscript.CheckURL(base))
}

func plaintext(url string) []string {
	return redisscript.Plaintext(strings.Replace(url, "+stream://", "://", 1))
}
