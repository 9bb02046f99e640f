package redispubsub

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/sink"
)

// ListenerConfig configures OpenListener. Zero means the default in parentheses.
type ListenerConfig struct {
	// PingEvery is how long nothing may arrive before the server is asked whether it is there (1
	// s).
	PingEvery time.Duration
	// DeadAfter is how long nothing may arrive, not even an answer to that, before the connection
	// counts as broken (3 s); up to one PingEvery longer. It bounds connecting too. At least three
	// times PingEvery.
	DeadAfter time.Duration
	// TLS replaces the system's certificate authorities or adds a client certificate, for a
	// rediss:// URL.
	TLS    *tls.Config
	Logger *slog.Logger // (slog.Default)
}

func (c ListenerConfig) withDefaults() (ListenerConfig, error) {
	var problems []error
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{{"PingEvery", &c.PingEvery, time.Second}, {"DeadAfter", &c.DeadAfter, 3 * time.Second}} {
		if *d.value = cmp.Or(*d.value, d.def); *d.value < 0 {
			problems = append(problems, fmt.Errorf("%s is %s, must be positive", d.name, *d.value))
		}
	}
	if c.DeadAfter < 3*c.PingEvery {
		problems = append(problems,
			fmt.Errorf("DeadAfter (%s) is less than three times PingEvery (%s): a quiet server that is well would count as dead",
				c.DeadAfter, c.PingEvery))
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c, errors.Join(problems...)
}

// listener hears what is published on Redis channels. It is safe for concurrent use.
type listener struct {
	server redisscript.Server
	cfg    ListenerConfig

	received, messages, reconnects atomic.Uint64

	// telling is held while listeners are called, so that stop can wait for the last call. It is
	// not mu: a listener may hold a lock of its own that its owner also holds while subscribing.
	telling sync.Mutex

	mu       sync.Mutex
	channels map[string]*channel
	changed  map[string]struct{} // channels whose subscription is not as it should be
	wake     chan struct{}       // tells the writer of changed; nobody waits to send
	sent     []request           // not answered yet: the server answers in this order
	link     link
	lastErr  error // of the connection
	warned   bool  // that something was refused, on this connection
}

var _ sink.Subscriber = (*listener)(nil)

// link is what is known of the connection.
type link uint8

const (
	linkUnknown link = iota // Run has not begun, or connects for the first time: worth waiting for
	linkUp
	linkDown
)

// OpenListener returns what hears the channels of the Redis that url names, in the forms that Open
// takes; a database number is ignored, as Pub/Sub has none. It does not connect: that is Run's. All
// problems of url and cfg are reported at once. All channels share one connection, and each is
// subscribed once, however many listen to it.
//
// A listener of a channel is told of every message that Redis sends after it has acknowledged, in
// Redis's order. Redis Pub/Sub keeps nothing: what is published while the connection is broken does
// not arrive, and neither does what a Redis that fails over has not passed on. The first is told,
// by Lost and Resumed; for the second, somebody must look in the log.
//
// It needs Redis 6.2 or later (tested with 7.0), and a user with at least
//
//	&the-channels +subscribe +unsubscribe +ping
//
// A channel that the user may not hear is asked for again every 5 s; the others are not concerned.
// Of a Cluster any node will do, since each passes all messages on: the hosts of the URL are tried
// in turn.
func OpenListener(url string, cfg ListenerConfig) (sink.Subscriber, error) {
	l, err := newListener(url, cfg)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func newListener(url string, cfg ListenerConfig) (*listener, error) {
	cfg, err := cfg.withDefaults()
	server, urlErr := urls.Parse(url)
	if err := errors.Join(err, urlErr, server.UseTLS(cfg.TLS)); err != nil {
		return nil, fmt.Errorf("configure Redis listener: %w", err)
	}
	options := server.Options
	options.DB = 0       // nothing to select, and no right to do so needed
	options.Protocol = 2 // with 3, go-redis looks for other kinds of pushes before each message
	options.ReadTimeout, options.WriteTimeout = cfg.DeadAfter, cfg.DeadAfter
	options.MinIdleConns = 0
	if cfg.TLS == nil && options.TLSConfig != nil {
		options.TLSConfig.ServerName = "" // it is the first host's; each has its own
	}
	return &listener{server: server, cfg: cfg,
		channels: map[string]*channel{}, changed: map[string]struct{}{}, wake: make(chan struct{}, 1)}, nil
}

// Subscribe implements outbox.Subscriber. Before Run it waits for ctx; while Redis is known to be
// down, or to refuse the channel, it waits for nothing. Listeners of one channel are handed the
// same bytes, to keep but not to change. A listener may be called before Subscribe has returned.
// stop may be called several times, but neither by the listener while it is being called, nor with
// a lock held that the listener needs: it would wait for itself.
func (l *listener) Subscribe(
	ctx context.Context, name string, listener outbox.Listener,
) (acknowledged bool, stop func()) {
	m := &member{listener: listener}
	decided := l.join(name, m)
	select {
	case <-decided:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m.decided = nil // from here on the listener is told
	return m.live, func() { l.leave(name, m) }
}

// State implements sink.Subscriber. While it is up, the server may have been gone for DeadAfter and
// a PingEvery.
func (l *listener) State() sink.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := sink.State{Up: l.link == linkUp, Reconnects: l.reconnects.Load(), Err: l.lastErr}
	for _, c := range l.channels {
		if len(c.members) > 0 {
			s.Channels++
		}
		if s.Err == nil {
			s.Err = c.refused
		}
	}
	return s
}
