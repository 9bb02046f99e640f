package redisscript

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
)

// Kind is how the URLs of a sink on Redis look: as go-redis has them, with a suffix at the scheme.
type Kind struct{ Suffix string }

// Schemes are what such URLs begin with.
func (k Kind) Schemes() []string {
	return []string{"redis" + k.Suffix, "rediss" + k.Suffix, "unix" + k.Suffix}
}

// Server is what a URL names: a server, or several nodes of a Cluster.
type Server struct {
	Options *redis.Options // of the first host
	Hosts   []string       // the addresses of all
}

// ErrForm is all that is said of a URL that cannot be parsed: the errors of net/url and go-redis
// quote it, and a password with an unescaped slash turns up in them as port, database or option.
var ErrForm = errors.New("has a parameter that nobody knows or a value that one does not take; in user and password " +
	"write / ? # % @ percent-encoded. It is not shown here because it may hold a password")

func (k Kind) errForm() error {
	return fmt.Errorf("the Redis URL is not of the form redis%[1]s://user:password@host:6379/0 (or rediss%[1]s://, "+
		"unix%[1]s://), or %[2]w", k.Suffix, ErrForm)
}

// ErrDatabase is the error of a URL of a Cluster with a database.
var ErrDatabase = errors.New("the Redis URL names several hosts and a database, but a Cluster has database 0 only")

// Parse reads a URL. Its options are the sink's own, and go-redis's. An error shows nothing of the
// URL.
func (k Kind) Parse(text string, own ...sinkurl.Option) (Server, error) {
	if err := sinkurl.CheckUser(text); err != nil {
		return Server{}, err
	}
	parts := sinkurl.SplitHosts(text)
	scheme, ok := strings.CutSuffix(parts.Scheme, k.Suffix)
	if !ok || strings.Contains(text, "#") { // a fragment would be ignored in silence: half a password
		return Server{}, k.errForm()
	}
	if badPort(parts.Hosts) {
		return Server{}, sinkurl.ErrPort
	}
	path, query, _ := strings.Cut(parts.Rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return Server{}, k.errForm()
	}
	problems := sinkurl.Take(values, own...)
	parts.Scheme, parts.Rest = scheme, path+"?"+values.Encode()
	options, err := redis.ParseURL(parts.One(parts.Hosts[0]))
	if err != nil {
		return Server{}, errors.Join(problems, k.errForm())
	}
	s := Server{Options: options, Hosts: []string{options.Addr}}
	for _, name := range parts.Hosts[1:] {
		host, err := redis.ParseURL("redis://" + name)
		if err != nil || name == "" {
			return Server{}, errors.Join(problems, k.errForm())
		}
		s.Hosts = append(s.Hosts, host.Addr)
	}
	if len(s.Hosts) > 1 && options.DB != 0 {
		problems = errors.Join(problems, ErrDatabase)
	}
	tune(options)
	return s, problems
}

// badPort tells whether a host has a port that cannot be. go-redis finds that out when it connects,
// and is waited for.
func badPort(hosts []string) bool {
	for _, host := range hosts {
		if _, port, err := net.SplitHostPort(host); err == nil && port != "" {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return true
			}
		}
	}
	return false
}

// Plaintext returns the hosts that are reached without TLS and may be on other machines.
func (k Kind) Plaintext(text string) []string {
	parts := sinkurl.SplitHosts(text)
	if parts.Scheme != "redis"+k.Suffix || sinkurl.CheckUser(text) != nil {
		return nil
	}
	return sinkurl.Elsewhere(parts.Hosts)
}

// Encrypted returns the addresses where connections begin with TLS.
func (k Kind) Encrypted(text string) []string {
	text, _, _ = strings.Cut(text, "?") // the options may be the sink's own
	if s, err := k.Parse(text); err == nil && s.Options.TLSConfig != nil {
		return s.Hosts
	}
	return nil
}

// Hint names the remedy for an error of a sink on Redis; "" for one that is not its own.
func Hint(err error) string {
	switch {
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return "correct user or password in the URL, or the user's rights (ACL)"
	case strings.Contains(err.Error(), "connect to Redis"):
		return "is Redis running there?"
	}
	return ""
}

// UseTLS replaces what the URL says of TLS, which it must ask for. Nil leaves it.
func (s Server) UseTLS(settings *tls.Config) error {
	switch {
	case settings == nil || s.Options == nil:
	case s.Options.TLSConfig == nil:
		return errors.New("TLS is set but the URL is not rediss://")
	default:
		s.Options.TLSConfig = settings
	}
	return nil
}

// Hide replaces an error that quotes the password: proxies and old servers repeat the arguments of
// a command they do not know, and AUTH has the password among them.
func (s Server) Hide(err error) error { return sinkurl.Hide(err, s.Options.Password) }

// Connect returns a client that has had an answer. An error is of class outbox.ClassUnavailable, or
// outbox.ClassPermanent where the server knows neither user nor password, or nobody vouches for it.
func (s Server) Connect(ctx context.Context) (redis.UniversalClient, error) {
	client, err := connect(ctx, s.Options, s.Hosts)
	if err == nil {
		return client, nil
	}
	refused := redis.IsAuthError(err)
	return nil, sinkurl.Failed(
		fmt.Errorf("connect to Redis at %s: %w", strings.Join(s.Hosts, ","), s.Hide(err)), refused)
}

// tune sets what go-redis's defaults are wrong about here.
func tune(o *redis.Options) {
	// By default a lost reply makes go-redis send the command again: with the window off that is a
	// second message (measured).
	o.MaxRetries = -1
	o.DialerRetries = 1 // trying again is the relay's business, which backs off and tells
	o.DialTimeout = cmp.Or(o.DialTimeout, 3*time.Second)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 5*time.Second)
	o.ContextTimeoutEnabled = true
	// Every batch is a pipeline. A second pool for them would dial an unreachable server twice; its
	// one merit is the buffer.
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
		// No redirect is followed, and no lost reply retried, within a call. After MOVED the next
		// attempt knows the way. ASK means that the slot is being migrated: publishing at its new
		// home already would miss what the old one remembers, and leave a set in the way of the one
		// that is to come.
		MaxRedirects: -1, MaxRetries: -1, DialerRetries: o.DialerRetries,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns,
		MaxIdleConns:   o.MaxIdleConns,
		MaxActiveConns: o.MaxActiveConns, ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		PipelinePoolSize: o.PipelinePoolSize, ReadBufferSize: o.ReadBufferSize, WriteBufferSize: o.WriteBufferSize,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
}
