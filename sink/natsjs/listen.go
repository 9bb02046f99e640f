package natsjs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink"
)

// listener hears what is published on subjects, as core NATS passes it on. All subjects share one connection, and each
// is subscribed once, however many listen to it. It is safe for concurrent use.
//
// Core NATS keeps nothing: what is published while the connection is broken does not arrive, which Lost and Resumed
// tell. It asks no stream either: a copy that the stream refused as a duplicate is heard, and a message that no stream
// took. In a cluster, a server that the publisher is connected to may learn of a subscription a moment after it was
// acknowledged.
//
// It needs a user who may subscribe to the subjects. A subject that the user may not hear is asked for again every 5 s;
// the others are not concerned. A name that is no subject, or would be several (a wildcard), is never acknowledged.
type listener struct {
	target *target
	log    *slog.Logger

	// telling is held while listeners are called, so that stop can wait for the last call. It is not mu: a listener may
	// hold a lock of its own that its owner also holds while subscribing.
	telling sync.Mutex

	mu         sync.Mutex
	channels   map[string]*channel
	changed    map[string]struct{} // channels whose subscription may not be as it should be
	wake       chan struct{}       // tells Run of changed; nobody waits to send
	up, begun  bool                // begun: a first connection was tried
	reconnects uint64
	lastErr    error // of the connection
}

var _ sink.Subscriber = (*listener)(nil)

// channel is a subject that somebody listens to, or that is not unsubscribed from yet.
type channel struct {
	members []*member // replaced, not changed, when one leaves: the list may be in use
	sub     *nats.Subscription
	live    bool  // the server has acknowledged
	refused error // the server's answer to the last SUB, or what is wrong with the name
}

// member is one subscription.
type member struct {
	listener outbox.Listener
	live     bool          // what the listener knows
	decided  chan struct{} // closed when live, or known not to be; nil: Subscribe does not wait (any more)
}

func (m *member) decide() {
	if m.decided != nil {
		close(m.decided)
		m.decided = nil
	}
}

// subscribeByURL returns a listener on the NATS that url names, in the forms that Open takes. Of the URL's query
// parameters only creds matters. It does not connect: that is Run's.
func subscribeByURL(url string, o sink.Options) (sink.Subscriber, error) {
	t, err := parseURL(url)
	if err == nil {
		err = t.configure(&Config{})
	}
	if err != nil {
		return nil, fmt.Errorf("configure NATS listener: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &listener{
		target: t, log: o.Logger,
		channels: map[string]*channel{}, changed: map[string]struct{}{}, wake: make(chan struct{}, 1),
	}, nil
}

// Subscribe implements outbox.Subscriber. Before Run it waits for ctx; while NATS is known to be away, or to refuse the
// subject, it waits for nothing. Listeners of one subject are handed the same bytes, to keep but not to change. A
// listener may be called before Subscribe has returned. stop may be called several times, but neither by the listener
// while it is being called, nor with a lock held that the listener needs: it would wait for itself.
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

// State implements sink.Subscriber.
func (l *listener) State() sink.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := sink.State{Up: l.up, Reconnects: l.reconnects, Err: l.lastErr}
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

// join adds m to a channel and returns what is closed when m is known to be live or not to be.
func (l *listener) join(name string, m *member) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.channels[name]
	if c == nil {
		c = &channel{}
		if err := checkSubject(name); err != nil {
			c.refused = fmt.Errorf("subscribe: %w", err)
		}
		l.channels[name] = c
	}
	c.members = append(c.members, m)
	decided := make(chan struct{})
	m.decided = decided
	m.live = c.live
	if m.live || c.refused != nil || l.begun && !l.up {
		m.decide()
	}
	l.change(name)
	return decided
}

// leave removes m and returns after the last call of its listener.
func (l *listener) leave(name string, m *member) {
	l.mu.Lock()
	if c := l.channels[name]; c != nil {
		var left []*member
		for _, other := range c.members {
			if other != m {
				left = append(left, other)
			}
		}
		c.members = left
		if len(left) == 0 && c.sub == nil {
			delete(l.channels, name)
		}
		l.change(name)
	}
	l.mu.Unlock()
	l.telling.Lock() // a call that has begun is over when this is free
	defer l.telling.Unlock()
}

// change has Run look at a channel. mu is held.
func (l *listener) change(name string) {
	l.changed[name] = struct{}{}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// deliver hands a message to those who listen to its subject.
func (l *listener) deliver(m *nats.Msg) {
	l.telling.Lock()
	defer l.telling.Unlock()
	l.mu.Lock()
	var members []*member
	if c := l.channels[m.Subject]; c != nil {
		members = c.members
	}
	l.mu.Unlock()
	for _, one := range members {
		one.listener.Message(m.Data)
	}
}

// acknowledged tells who waits for these channels.
func (l *listener) acknowledged(names []string) {
	l.telling.Lock()
	defer l.telling.Unlock()
	var resumed []*member
	l.mu.Lock()
	for _, name := range names {
		c := l.channels[name]
		if c == nil || c.sub == nil || c.refused != nil {
			continue
		}
		c.live = true
		for _, m := range c.members {
			if !m.live && m.decided == nil {
				resumed = append(resumed, m)
			}
			m.live = true
			m.decide()
		}
	}
	l.mu.Unlock()
	for _, m := range resumed {
		m.listener.Resumed()
	}
}

// refuse takes the server's word that the user may not hear a channel, which it may say of one that it let him hear
// before.
func (l *listener) refuse(name string, err error) {
	l.telling.Lock()
	defer l.telling.Unlock()
	l.mu.Lock()
	var lost []*member
	if c := l.channels[name]; c != nil {
		if c.refused == nil {
			l.log.Warn("NATS refuses to subscribe", "subject", name, "error", err)
		}
		c.refused = fmt.Errorf("subscribe to %q: %w", name, err)
		lost = c.silence()
	}
	l.mu.Unlock()
	for _, m := range lost {
		m.listener.Lost()
	}
}

// silence makes a channel one that is not heard, and returns who has to be told. mu is held.
func (c *channel) silence() (lost []*member) {
	c.live = false
	for _, m := range c.members {
		if m.live {
			lost = append(lost, m)
		}
		m.live = false
		m.decide()
	}
	return lost
}

// disconnected tells everybody.
func (l *listener) disconnected(err error) {
	l.telling.Lock()
	defer l.telling.Unlock()
	var lost []*member
	l.mu.Lock()
	l.up, l.begun, l.lastErr = false, true, err
	for name, c := range l.channels {
		lost = append(lost, c.silence()...)
		c.sub = nil
		if checkSubject(name) == nil {
			c.refused = nil
		}
		if len(c.members) == 0 {
			delete(l.channels, name)
		}
	}
	l.mu.Unlock()
	for _, m := range lost {
		m.listener.Lost()
	}
}

var errSlow = errors.New("more messages arrived than could be passed on")
