package redisscript

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
)

// Server is what the URL of a sink names: a server, or several nodes of a Cluster.
type Server struct {
	Options *redis.Options // of the first host
	Hosts   []string       // the addresses of all
}

// Parse reads a URL of one of the schemes redis, rediss and unix. Where certificates is not nil, it replaces what the
// URL says of TLS, which it must ask for. An error shows nothing of the URL.
func Parse(url string, certificates *tls.Config) (Server, error) {
	options, hosts, err := ParseURL(url)
	if err == nil && certificates != nil {
		if options.TLSConfig == nil {
			err = errors.New("TLS is set but the URL is not rediss://")
		}
		options.TLSConfig = certificates
	}
	return Server{options, hosts}, err
}

// Connect returns a client that has had an answer. An error is of class outbox.ClassUnavailable and shows no password.
func (s Server) Connect(ctx context.Context) (redis.UniversalClient, error) {
	client, err := connect(ctx, s.Options, s.Hosts)
	if err != nil {
		return nil, outbox.Unavailable(
			fmt.Errorf("connect to Redis at %s: %w", strings.Join(s.Hosts, ","), s.Password().Hide(err)))
	}
	return client, nil
}

// Password is the one of the URL.
func (s Server) Password() Secret { return Secret(s.Options.Password) }

// ErrURL is all that is said of a URL that cannot be parsed: the errors of net/url and go-redis quote it, and a
// password with an unescaped slash turns up in them as port, database or option.
var ErrURL = errors.New("the Redis URL is not of the form redis://user:password@host:6379/0 (or rediss://, unix://), " +
	"or has a parameter that nobody knows or a value that one does not take; in user and password write / ? # % @ " +
	"percent-encoded. It is not shown here because it may hold a password")

// ErrDatabase is the error of a URL of a Cluster with a database.
var ErrDatabase = errors.New("the Redis URL names several hosts and a database, but a Cluster has database 0 only")

// ParseURL returns the options of the first host and the addresses of all.
func ParseURL(url string) (*redis.Options, []string, error) {
	parts := sinkurl.SplitHosts(url)
	options, err := redis.ParseURL(parts.One(parts.Hosts[0]))
	if err != nil || strings.Contains(url, "#") { // a fragment would be ignored in silence: half a password
		return nil, nil, ErrURL
	}
	hosts := []string{options.Addr}
	for _, name := range parts.Hosts[1:] {
		host, err := redis.ParseURL("redis://" + name)
		if err != nil || name == "" {
			return nil, nil, ErrURL
		}
		hosts = append(hosts, host.Addr)
	}
	if len(hosts) > 1 && options.DB != 0 {
		return nil, nil, ErrDatabase
	}
	tune(options)
	return options, hosts, nil
}

// tune sets what go-redis's defaults are wrong about here.
func tune(o *redis.Options) {
	// By default a lost reply makes go-redis send the command again: with the window off that is a second message
	// (measured).
	o.MaxRetries = -1
	o.DialerRetries = 1 // trying again is the relay's business, which backs off and tells
	o.DialTimeout = cmp.Or(o.DialTimeout, 3*time.Second)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 5*time.Second)
	o.ContextTimeoutEnabled = true
	// Every batch is a pipeline. A second pool for them would dial an unreachable server twice; its one merit is the
	// buffer.
	o.PipelinePoolSize = -1
	o.WriteBufferSize = 128 << 10
	// It would be announced on every connection, for hand-overs that only Redis's own cloud does.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// connect returns a client that has had an answer.
func connect(ctx context.Context, o *redis.Options, hosts []string) (redis.UniversalClient, error) {
	cluster := len(hosts) > 1
	if !cluster {
		client := redis.NewClient(o)
		// The mode comes from HELLO and not from INFO, which a user with few rights may not call.
		hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
		if err := client.Process(ctx, hello); err != nil {
			return nil, errors.Join(err, client.Close())
		}
		if hello.Val()["mode"] != "cluster" {
			return client, nil
		}
		if err := client.Close(); err != nil {
			return nil, err
		}
	}
	client := redis.NewClusterClient(clusterOptions(o, hosts))
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

func clusterOptions(o *redis.Options, hosts []string) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: hosts, ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password,
		TLSConfig: o.TLSConfig,
		// No redirect is followed, and no lost reply retried, within a call. After MOVED the next attempt knows the
		// way. ASK means that the slot is being migrated: publishing at its new home already would miss what the old
		// one remembers, and leave a set in the way of the one that is to come.
		MaxRedirects: -1, MaxRetries: -1, DialerRetries: o.DialerRetries,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns,
		MaxIdleConns:   o.MaxIdleConns,
		MaxActiveConns: o.MaxActiveConns, ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		PipelinePoolSize: o.PipelinePoolSize, ReadBufferSize: o.ReadBufferSize, WriteBufferSize: o.WriteBufferSize,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
}

// Secret is a password that must not get into an error.
type Secret string

// Hide replaces an error that quotes the password: proxies and old servers repeat the arguments of a command they do
// not know, and AUTH has the password among them.
func (s Secret) Hide(err error) error {
	return sinkurl.Hide(err, string(s))
}
