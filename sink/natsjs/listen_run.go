package natsjs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// reconnect is how long to wait for a server that is away. Jitter, because all gateways lose it at the same moment.
var reconnect = backoff.Backoff{Base: 50 * time.Millisecond, Factor: 2, Cap: 900 * time.Millisecond, Jitter: 0.1}

const (
	// refusedAgain is how often a refused subject is asked for.
	refusedAgain = 5 * time.Second
	// flushTimeout bounds how long an acknowledgement may take.
	flushTimeout = 5 * time.Second
	// heardAhead is how many messages may wait for the listeners. A client that lets more pile up drops them.
	heardAhead = 16 << 10
)

// Run connects, and connects again whenever the connection breaks, after 50 ms at first and 1 s at most. It returns nil
// when ctx ends and every listener has been told. An outage is logged when it begins and when it ends. Run may be
// called once.
func (l *listener) Run(ctx context.Context) error {
	var away time.Time // since when; zero: it is not
	failures, connected := 0, false
	for {
		began := time.Now()
		err := l.connection(ctx, func() {
			l.mu.Lock()
			l.up, l.begun, l.lastErr = true, true, nil
			if connected {
				l.reconnects++
			}
			for name := range l.channels {
				l.change(name)
			}
			l.mu.Unlock()
			connected = true
			if !away.IsZero() {
				l.log.Info("NATS messages arrive again", "host", l.target.String(), "after", time.Since(away))
				away = time.Time{}
			}
		})
		if ctx.Err() != nil {
			l.disconnected(errors.New("the listener was stopped"))
			return nil
		}
		err = fmt.Errorf("listen to NATS: %w", l.target.hide(err))
		l.disconnected(err)
		if away.IsZero() {
			away = time.Now()
			l.log.Warn("NATS messages do not arrive, connecting again", "error", err)
		}
		if time.Since(began) > reconnect.Cap { // otherwise it may be a server that takes connections only to drop them
			failures = 0
		}
		failures++
		select {
		case <-ctx.Done():
		case <-time.After(reconnect.Delay(failures)):
		}
	}
}

// connection is one connection from its beginning to its end, which is the error. It calls established once the server
// has answered.
func (l *listener) connection(ctx context.Context, established func()) error {
	ctx, hangUp := context.WithCancelCause(ctx) // the first to fail says why
	defer hangUp(nil)
	e, err := l.target.listen(ctx, l.refuse, hangUp)
	if err != nil {
		return err
	}
	established()
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case m := <-e.heard:
				l.deliver(m)
			case <-ctx.Done():
				return
			}
		}
	})
	hangUp(l.keep(ctx, e))
	reader.Wait()
	l.target.known = e.conn.DiscoveredServers()
	e.conn.Close()
	return context.Cause(ctx)
}

// keep makes the subscriptions what they should be.
func (l *listener) keep(ctx context.Context, e *ears) error {
	again := time.NewTicker(refusedAgain)
	defer again.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
			err = l.apply(ctx, e)
		case <-again.C:
			err = l.askAgain()
		}
		if err != nil {
			return err
		}
	}
}

// apply subscribes to the changed channels that somebody listens to, and unsubscribes from the others. The client is
// called without mu: it may be waiting for a server that reads nothing.
func (l *listener) apply(ctx context.Context, e *ears) error {
	var wanted []string
	var unwanted []*nats.Subscription
	l.mu.Lock()
	for name := range l.changed {
		c := l.channels[name]
		switch {
		case c == nil:
		case len(c.members) == 0:
			if c.sub != nil {
				unwanted = append(unwanted, c.sub)
			}
			delete(l.channels, name)
		case c.sub == nil && c.refused == nil:
			wanted = append(wanted, name)
		}
	}
	clear(l.changed)
	l.mu.Unlock()
	for _, sub := range unwanted {
		if err := sub.Unsubscribe(); err != nil {
			return fmt.Errorf("unsubscribe from %q: %w", sub.Subject, err)
		}
	}
	for _, name := range wanted {
		sub, err := e.conn.ChanSubscribe(name, e.heard)
		if err != nil {
			return fmt.Errorf("subscribe to %q: %w", name, err)
		}
		l.mu.Lock()
		c := l.channels[name]
		if c == nil { // it was left meanwhile
			c = &channel{}
			l.channels[name] = c
		}
		c.sub = sub
		if len(c.members) == 0 {
			l.change(name)
		}
		l.mu.Unlock()
	}
	if len(wanted) == 0 {
		return nil
	}
	if err := e.flush(ctx); err != nil {
		return err
	}
	l.acknowledged(wanted)
	return nil
}

// askAgain asks again for the channels that were refused: the user's rights may have been widened.
func (l *listener) askAgain() error {
	var refused []*nats.Subscription
	l.mu.Lock()
	for name, c := range l.channels {
		if c.refused != nil && c.sub != nil {
			refused = append(refused, c.sub)
			c.refused, c.sub = nil, nil
			l.change(name)
		}
	}
	l.mu.Unlock()
	for _, sub := range refused {
		if err := sub.Unsubscribe(); err != nil { // the client still has it
			return fmt.Errorf("unsubscribe from %q: %w", sub.Subject, err)
		}
	}
	return nil
}

// ears is a connection that listens.
type ears struct {
	conn  *nats.Conn
	heard chan *nats.Msg // of all subscriptions

	mu      sync.Mutex
	handled error         // the last that was told beside the answers and is dealt with
	told    chan struct{} // that handled has changed; nobody waits to send
}

// listen connects. refuse is called for a subject that the user may not hear, lost when the connection is over or has
// dropped a message.
func (t *target) listen(ctx context.Context, refuse func(string, error), lost func(error)) (*ears, error) {
	e := &ears{heard: make(chan *nats.Msg, heardAhead), told: make(chan struct{}, 1)}
	conn, err := t.dial(ctx,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				lost(errSlow)
			} else if found := violation.FindStringSubmatch(err.Error()); found != nil {
				refuse(found[2], errors.New(found[0]))
			}
			e.mu.Lock()
			e.handled = err
			e.mu.Unlock()
			select {
			case e.told <- struct{}{}:
			default:
			}
		}),
		nats.ClosedHandler(func(c *nats.Conn) { lost(lostBy(c)) }))
	e.conn = conn
	return e, err
}

// flush returns once the server has dealt with what was sent. What it refuses it says before it answers, and the client
// tells it by another goroutine: flush waits for that too.
func (e *ears) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := e.conn.FlushWithContext(ctx); err != nil {
		return err
	}
	for {
		last := e.conn.LastError()
		e.mu.Lock()
		done := e.handled == last //nolint:errorlint // this very one: an earlier one may have the same text
		e.mu.Unlock()
		if done || !errors.Is(last, nats.ErrPermissionViolation) {
			return nil
		}
		select {
		case <-e.told:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
