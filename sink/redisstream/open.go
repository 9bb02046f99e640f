package redisstream

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/sink"
)

// urls are those of this package.
var urls = redisscript.Kind{Suffix: "+stream"}

// Driver opens sinks by the URLs that Open takes. It turns off what go-redis writes to stderr by
// itself, into the middle of a log: what those lines say comes back as errors too.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes: urls.Schemes(),
		Example: "redis+stream://user:password@host:6379/0?maxlen=1000000, rediss+stream:// for TLS",
		Open: func(ctx context.Context, url string, o sink.Options) (sink.Sink, error) {
			logging.Disable()
			return Open(ctx, url, Config{Window: o.Window, Prefix: o.Prefix})
		},
		Check: func(url string) error {
			var cfg Config
			_, err := parse(url, &cfg)
			return errors.Join(err, cfg.check())
		},
		Plaintext: urls.Plaintext, Encrypted: urls.Encrypted, Hint: redisscript.Hint,
	}
}

// Open connects to the Redis that url names and returns a Sink that Close closes:
//
//	redis+stream://user:password@host:6379/0         a server, or any node of a Cluster
//	rediss+stream://…                                the same with TLS
//	redis+stream://user:password@host1:6379,host2    several nodes of a Cluster
//	unix+stream://user:password@/path/to/redis.sock
//
// Its query parameters set fields of cfg: cloudevents=binary (structured, watermill), create=true,
// maxlen=100000, minid=72h (how long an entry stays, MaxAge), exact=true. The others are go-redis's
// (read_timeout=2s, pool_size=4); its retries are off whatever they say. One that nobody knows is
// an error.
//
// A server that cannot be reached is an error of class outbox.ClassUnavailable. One that refuses
// the user, or for which nobody vouches, is one of class outbox.ClassPermanent.
//
// A call that fails although the server takes others is sent again in parts, down to the delivery
// that fails alone. That is the delivery's own error and can be retried; so is a stream that the
// user may not write to. Where the server takes nothing, the error is of class
// outbox.ClassUnavailable. Either may leave deliveries published: they are answered as duplicates
// when they come again within the window.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	server, err := parse(url, &cfg)
	p, err := redisscript.Open(ctx, server, cfg.shared(), xadd(cfg), err, cfg.check())
	if err != nil {
		return nil, err
	}
	return &Sink{p}, nil
}

// parse reads a URL, whose own options win over cfg.
func parse(text string, cfg *Config) (redisscript.Server, error) {
	return urls.Parse(text, sinkurl.CloudEvents(&cfg.Binary, &cfg.Watermill),
		sinkurl.Flag("create", &cfg.Create), sinkurl.Flag("exact", &cfg.Exact),
		sinkurl.Option{Name: "maxlen", Takes: "1, 2, …", Set: func(value string) (ok bool) {
			n, err := strconv.ParseInt(value, 10, 64)
			cfg.MaxLen = n
			return err == nil && n > 0
		}},
		sinkurl.Option{Name: "minid", Takes: "a duration such as 72h", Set: func(value string) (ok bool) {
			d, err := time.ParseDuration(value)
			cfg.MaxAge = d
			return err == nil && d > 0
		}})
}
