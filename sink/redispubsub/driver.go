package redispubsub

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink"
)

// Driver opens sinks by the URLs that Open takes. It turns off what go-redis writes to stderr by itself, into the
// middle of a log: what those lines say comes back as errors too.
func Driver() sink.Driver {
	return sink.Driver{
		Schemes:   []string{"redis", "rediss", "unix"},
		Example:   "redis://user:password@host:6379/0, rediss:// for TLS, unix:// for a socket",
		Variables: []string{"REDIS_URL"},
		Open:      openByURL, Check: checkURL, Mask: sink.MaskURL, Plaintext: plaintext, Hint: hint,
		Subscribe: subscribeByURL, Tail: tail,
	}
}

func openByURL(ctx context.Context, url string, o sink.Options) (sink.Sink, error) {
	logging.Disable()
	s, err := Open(ctx, url, Config{Window: o.Window, Prefix: o.Prefix})
	if err != nil {
		return nil, lasting(err)
	}
	return s, nil
}

// lasting takes the class outbox.ClassUnavailable off an error that waiting does not cure: a Redis that knows neither
// user nor password, or one that nobody vouches for.
func lasting(err error) error {
	var certificate *tls.CertificateVerificationError
	if redis.IsAuthError(err) || errors.As(err, &certificate) {
		return outbox.Permanent(err)
	}
	return err
}

func checkURL(url string) error {
	if err := sink.CheckUser(url); err != nil {
		return err
	}
	if badPort(url) {
		return errors.New("a port in the URL is none of 1 to 65535 (not shown, it may hold a password)")
	}
	_, _, err := parseURL(url)
	return err
}

// badPort tells whether a host of the URL has a port that cannot be. go-redis finds that out when it connects, and is
// waited for.
func badPort(url string) bool {
	for _, host := range hostsOf(url) {
		if _, port, err := net.SplitHostPort(host); err == nil && port != "" {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return true
			}
		}
	}
	return false
}

// plaintext returns the hosts that are reached without TLS and may be on other machines: a name that is not localhost
// may be anybody's.
func plaintext(url string) (hosts []string) {
	if scheme, _, _ := strings.Cut(url, "://"); scheme != "redis" || sink.CheckUser(url) != nil {
		return nil
	}
	for _, host := range hostsOf(url) {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if host = strings.Trim(host, "[]"); host != "" && host != "localhost" && !net.ParseIP(host).IsLoopback() {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// hostsOf returns the hosts of a URL with their ports.
func hostsOf(url string) []string {
	_, rest, _ := strings.Cut(url, "://")
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return strings.Split(rest, ",")
}

func hint(err error) string {
	switch {
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return "correct user or password in the URL, or the user's rights (ACL)"
	case strings.Contains(err.Error(), "connect to Redis"):
		return "is Redis running there?"
	}
	return ""
}

func subscribeByURL(url string, o sink.Options) (sink.Subscriber, error) {
	logging.Disable()
	l, err := OpenListener(url, ListenerConfig{Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return subscriber{l}, nil
}

// subscriber is a Listener that tells its state in the words of package sink.
type subscriber struct{ *Listener }

// State returns what Stats returns.
func (s subscriber) State() sink.State {
	stats := s.Stats()
	return sink.State{Up: stats.Up, Channels: stats.Channels, Reconnects: stats.Reconnects, Err: stats.LastError}
}
