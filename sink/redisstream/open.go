package redisstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
)

// Open connects to the Redis that url names and returns a Sink that Close closes:
//
//	redis+stream://user:password@host:6379/0         a server, or any node of a Cluster
//	rediss+stream://…                                the same with TLS
//	redis+stream://user:password@host1:6379,host2    several nodes of a Cluster
//	unix+stream://user:password@/path/to/redis.sock
//
// Its query parameters set fields of cfg: cloudevents=binary (structured, watermill), create=true, maxlen=100000,
// minid=72h (how long an entry stays, MaxAge), exact=true. The others are go-redis's (read_timeout=2s, pool_size=4);
// its retries are off whatever they say. One that nobody knows is an error.
//
// A server that cannot be reached or refuses the user is an error of class outbox.ClassUnavailable.
//
// A call that fails although the server takes others is sent again in parts, down to the delivery that fails alone.
// That is the delivery's own error and can be retried; so is a stream that the user may not write to. Where the server
// takes nothing, the error is of class outbox.ClassUnavailable. Either may leave deliveries published: they are
// answered as duplicates when they come again within the window.
func Open(ctx context.Context, url string, cfg Config) (*Sink, error) {
	base, urlErr := parse(url, &cfg)
	cfg, err := cfg.withDefaults()
	var server redisscript.Server
	if urlErr == nil {
		server, urlErr = redisscript.Parse(base, cfg.TLS)
	}
	if err := errors.Join(err, own(urlErr)); err != nil {
		return nil, fmt.Errorf("configure Redis Streams sink: %w", err)
	}
	client, err := server.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s := newPublisher(client, cfg)
	s.Own(server.Password())
	return &Sink{s}, nil
}

// errURL is all that is said of a URL that cannot be parsed, see redisscript.ErrURL.
var errURL = errors.New("the URL is not of the form redis+stream://user:password@host:6379/0 (or rediss+stream://, " +
	"unix+stream://), or has a parameter that nobody knows or a value that one does not take; in user and password " +
	"write / ? # % @ percent-encoded. It is not shown here because it may hold a password")

// own says what is wrong with a URL in the words of this package's URLs.
func own(err error) error {
	if errors.Is(err, redisscript.ErrURL) {
		return errURL
	}
	return err
}

// parse sets the fields of cfg that a URL's parameters name, and returns the URL of the server.
func parse(text string, cfg *Config) (base string, err error) {
	scheme, rest, ok := strings.Cut(text, "+stream://")
	if !ok || strings.Contains(rest, "#") {
		return "", errURL
	}
	if err := sinkurl.CheckUser(text); err != nil {
		return "", err
	}
	rest, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errURL
	}
	problems := sinkurl.Take(values, sinkurl.CloudEvents(&cfg.Binary, &cfg.Watermill),
		sinkurl.Flag("create", &cfg.Create), sinkurl.Flag("exact", &cfg.Exact),
		sinkurl.Option{Name: "maxlen", Takes: "1, 2, …", Set: func(value string) bool {
			cfg.MaxLen, err = strconv.ParseInt(value, 10, 64)
			return err == nil && cfg.MaxLen > 0
		}},
		sinkurl.Option{Name: "minid", Takes: "a duration such as 72h", Set: func(value string) bool {
			cfg.MaxAge, err = time.ParseDuration(value)
			return err == nil && cfg.MaxAge > 0
		}})
	base = scheme + "://" + rest
	if len(values) > 0 {
		base += "?" + values.Encode()
	}
	return base, problems
}
