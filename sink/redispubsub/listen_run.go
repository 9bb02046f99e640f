package redispubsub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// reconnect is how long to wait for a server that is away. Jitter, because all gateways lose it at
// the same moment.
var reconnect = backoff.Backoff{Base: 50 * time.Millisecond, Factor: 2, Cap: 900 * time.Millisecond, Jitter: 0.1}

// refusedAgain is how often a refused channel is asked for.
const refusedAgain = 5 * time.Second

var (
	errStopped = errors.New("the listener was stopped")
	errOver    = errors.New("the connection is over")
)

// Run connects, and connects again whenever the connection breaks, after 50 ms at first and 1 s at
// most. It returns nil when ctx ends and every listener has been told. An outage is logged when it
// begins and when it ends. Run may be called once.
func (l *listener) Run(ctx context.Context) error {
	var away time.Time // since when; zero: it is not
	failures, connected := 0, false
	for turn := 0; ; turn++ {
		host := l.server.Hosts[turn%len(l.server.Hosts)]
		began := time.Now()
		err := l.connection(ctx, host, func() {
			l.connected()
			if connected {
				l.reconnects.Add(1)
			}
			connected = true
			if !away.IsZero() {
				l.cfg.Logger.Info("Redis messages arrive again", "host", host, "after", time.Since(away))
				away = time.Time{}
			}
		})
		if ctx.Err() != nil {
			l.disconnected(errStopped)
			return nil
		}
		err = fmt.Errorf("listen to Redis at %s: %w", host, l.server.Hide(err))
		l.disconnected(err)
		if away.IsZero() {
			away = time.Now()
			l.cfg.Logger.Warn("Redis messages do not arrive, connecting again", "error", err)
		}
		if time.Since(began) > reconnect.Cap { // otherwise it may be a server that takes connections only to drop them
			failures = 0
		}
		failures++
		backoff.Wait(ctx, reconnect.Delay(failures))
	}
}

// connection is one connection from its beginning to its end, which is the error. It calls
// established once the server has answered.
func (l *listener) connection(ctx context.Context, host string, established func()) error {
	ctx, hangUp := context.WithCancelCause(ctx) // the first to fail says why
	defer hangUp(nil)
	client := l.client(ctx, host)
	defer func() { _ = client.Close() }()
	pubsub := client.Subscribe(ctx) // sends nothing yet
	defer func() { _ = pubsub.Close() }()

	// The first PING connects and authenticates. Its answer is waited for, because a server may
	// take a connection and answer nothing but errors (NOAUTH, LOADING, MASTERDOWN).
	dialling, cancel := context.WithTimeout(ctx, l.cfg.DeadAfter)
	err := pubsub.Ping(dialling)
	cancel()
	if err != nil {
		return err
	}
	if _, err := pubsub.ReceiveTimeout(ctx, l.cfg.DeadAfter); err != nil {
		return err
	}
	established()

	var writer sync.WaitGroup
	writer.Go(func() { hangUp(l.write(ctx, pubsub)) })
	hangUp(l.read(ctx, pubsub))
	writer.Wait()
	return context.Cause(ctx)
}

// client returns a client that dials once, and whose connection ctx closes. A go-redis subscription
// whose connection breaks makes another and subscribes again before it says a word, for as long as
// a dead server takes to dial. Here the break is to be known first. And while it reads it does not
// look at its context.
func (l *listener) client(ctx context.Context, host string) *redis.Client {
	options := *l.server.Options
	options.Addr = host
	var dialled atomic.Bool
	options.Dialer = func(dialling context.Context, network, address string) (conn net.Conn, err error) {
		if dialled.Swap(true) {
			return nil, errOver
		}
		if options.TLSConfig != nil {
			conn, err = (&tls.Dialer{Config: options.TLSConfig}).DialContext(dialling, network, address)
		} else {
			conn, err = new(net.Dialer).DialContext(dialling, network, address)
		}
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}
	return redis.NewClient(&options)
}

// read hands on what arrives until the connection ends. Nothing is waited for here: Redis
// disconnects a subscriber that lets 32 MB pile up.
func (l *listener) read(ctx context.Context, pubsub *redis.PubSub) error {
	for {
		reply, err := pubsub.Receive(ctx) // without a deadline: write watches
		var refused redis.Error
		switch r := reply.(type) {
		case *redis.Message:
			l.deliver(r)
		case *redis.Subscription:
			err = l.answer(r)
		case *redis.Pong:
			err = l.pong()
		default:
			if errors.As(err, &refused) {
				err = l.refuse(err)
			}
		}
		if err != nil {
			return err
		}
		l.received.Add(1)
	}
}

// write asks for what has changed, all that has at once, and whether the server is there when it is
// quiet.
//
// Silence is counted in turns of this loop and not read from a clock. A process may not run for a
// while (suspended, or starved on a busy machine: measured, 3 s). Then it finds its read deadline
// passed and the answer unread, and would drop a connection that is well. Turns it missed do not
// count.
func (l *listener) write(ctx context.Context, pubsub *redis.PubSub) error {
	turn := time.NewTicker(l.cfg.PingEvery)
	defer turn.Stop()
	again := time.NewTicker(refusedAgain)
	defer again.Stop()
	received, quiet := l.received.Load(), 0
	for {
		var requests []request
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
			requests = l.take()
		case <-again.C:
			l.askAgain()
		case <-turn.C:
			if now := l.received.Load(); now != received {
				received, quiet = now, 0
				continue
			}
			if quiet++; time.Duration(quiet)*l.cfg.PingEvery >= l.cfg.DeadAfter {
				return fmt.Errorf("nothing arrived for %s, nor an answer to PING", l.cfg.DeadAfter)
			}
			requests = l.ping()
		}
		for _, r := range requests {
			if err := r.send(ctx, pubsub); err != nil {
				return err
			}
		}
	}
}

func (r *request) send(ctx context.Context, pubsub *redis.PubSub) error {
	switch {
	case r.ping():
		return pubsub.Ping(ctx)
	case r.subscribe:
		return pubsub.Subscribe(ctx, r.names...)
	}
	return pubsub.Unsubscribe(ctx, r.names...)
}
