package natsjs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
)

const (
	dialTimeout = 3 * time.Second // of one server: connecting, and its greeting
	// writeTimeout bounds how long a server that reads nothing can hold a publication.
	writeTimeout = 5 * time.Second
	// ackTimeout is when the client forgets a message whose acknowledgement never came. Publish has
	// given up before.
	ackTimeout = time.Minute
	// clientPending is so large that the client never waits by itself: a publication bounds what it
	// has in flight.
	clientPending = 1 << 20
)

// link is one connection, and what was sent over it and is not answered.
//
// A connection that breaks is not made again by the client but by the next who needs one. So
// nothing that was published while it was away can go out later, and no refused password ends it
// for good. The client's own reconnection does both (a connection given to New may have it).
type link struct {
	conn *nats.Conn
	js   jetstream.JetStream

	mu      sync.Mutex
	waiting map[*nats.Msg]func(outbox.Result)
	down    error // why it is of no use any more
	mute    bool  // the user may not ask for streams
}

func newLink(conn *nats.Conn) (*link, error) {
	l := &link{conn: conn, waiting: map[*nats.Msg]func(outbox.Result){}}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(clientPending),
		jetstream.WithPublishAsyncTimeout(ackTimeout),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, ack *jetstream.PubAck) {
			l.answer(m, ack.Duplicate, nil)
		}),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) { l.answer(m, false, err) }))
	l.js = js
	return l, err
}

// once keeps the client from sending a message again because nobody was there to take it.
var once = jetstream.WithRetryAttempts(0)

// send publishes m. Its answer, which may be that it was not sent, goes to done.
func (l *link) send(m *nats.Msg, done func(outbox.Result)) {
	l.mu.Lock()
	if l.down != nil {
		done(outbox.Result{Err: l.down})
		l.mu.Unlock()
		return
	}
	l.waiting[m] = done
	l.mu.Unlock()
	if _, err := l.js.PublishMsgAsync(m, once); err != nil {
		l.answer(m, false, err)
	}
}

// answer is called by the client, and only the first answer counts.
func (l *link) answer(m *nats.Msg, duplicate bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if done, ok := l.waiting[m]; ok {
		delete(l.waiting, m)
		done(outbox.Result{Duplicate: duplicate, Err: err})
	}
}

// forget gives up on the answers for messages.
func (l *link) forget(messages []*nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		delete(l.waiting, m)
	}
}

// fail answers whatever waits, and what is sent from now on.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = err
	for m, done := range l.waiting {
		done(outbox.Result{Err: err})
		delete(l.waiting, m)
	}
}

// use tells why the link cannot be used, if it cannot.
func (l *link) use() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down == nil && l.conn.IsClosed() {
		return nats.ErrConnectionClosed
	}
	return l.down
}

// errPublishDenied is the answer for messages that the user may not publish.
var errPublishDenied = errors.New("the user may not publish there")

// violation is how the server names what it refuses.
var violation = regexp.MustCompile(`Permissions Violation for (Publish|Subscription) to "([^"]*)"`)

const streamNames = "$JS.API.STREAM.NAMES"

// refused takes what the server says beside its answers. A message that the user may not publish
// gets no other.
func (l *link) refused(err error) {
	found := violation.FindStringSubmatch(err.Error())
	if found == nil {
		return
	}
	what, subject := found[1], found[2]
	if what == "Subscription" {
		inbox := cmp.Or(l.conn.Opts.InboxPrefix, "_INBOX")
		if strings.HasPrefix(subject, inbox+".") {
			l.fail(fmt.Errorf("the user may not subscribe to %s, where acknowledgements arrive: "+
				"allow it to subscribe to %s.>", subject, inbox))
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = l.mute || subject == streamNames
	for m, done := range l.waiting {
		if m.Subject == subject {
			done(outbox.Result{Err: errPublishDenied})
			delete(l.waiting, m)
		}
	}
}

// connected returns a link that works, as far as is known: the latest or a new one. Errors are of
// class outbox.ClassUnavailable.
func (s *Sink) connected(ctx context.Context) (*link, error) {
	select {
	case s.dialling <- struct{}{}:
		defer func() { <-s.dialling }()
	case <-ctx.Done():
		return nil, interrupted(ctx)
	}
	s.mu.Lock()
	l, closed := s.link, s.closed
	s.mu.Unlock()
	if closed {
		return nil, outbox.Unavailable(errors.New("publish to NATS: the sink was closed"))
	}
	if l != nil {
		err := l.use()
		if err == nil {
			return l, nil
		}
		if s.target == nil {
			return nil, outbox.Unavailable(fmt.Errorf("publish to NATS: %w", err))
		}
		l.conn.Close()
		s.target.known = l.conn.DiscoveredServers()
	}
	l, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.conn.Close()
	}
	s.link = l
	return l, nil
}

func (s *Sink) dial(ctx context.Context) (l *link, err error) {
	var latest atomic.Pointer[link] // the handlers may be called before there is one
	conn, err := s.target.dial(ctx,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if l := latest.Load(); l != nil {
				l.refused(err)
			}
		}),
		nats.ClosedHandler(func(c *nats.Conn) {
			if l := latest.Load(); l != nil {
				l.fail(lostBy(c))
			}
		}))
	if err != nil {
		return nil, err
	}
	if l, err = newLink(conn); err != nil {
		conn.Close()
		return nil, outbox.Unavailable(fmt.Errorf("connect to NATS at %s: %w", s.target, err))
	}
	latest.Store(l)
	return l, nil // if it was closed before, use says so
}

// lostBy is why a connection ended.
func lostBy(c *nats.Conn) error {
	if err := c.LastError(); err != nil {
		return fmt.Errorf("the connection was lost: %w", err)
	}
	return errors.New("the connection was lost")
}

// dial connects to one of the servers, in an order of chance, and gives up when ctx ends. An error
// is of class outbox.ClassUnavailable.
func (t *target) dial(ctx context.Context, options ...nats.Option) (*nats.Conn, error) {
	d := &dialer{ctx: ctx}
	conn, err := nats.Connect(t.urls(), append(append(options, t.auth()...),
		nats.Name("outbox"), nats.NoReconnect(), nats.SetCustomDialer(d), nats.SkipHostLookup(), nats.Timeout(dialTimeout),
		nats.FlusherTimeout(writeTimeout), nats.ReconnectOnFlusherError(),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))...)
	if !d.connected() && err == nil {
		conn.Close()
		err = ctx.Err()
	}
	if err == nil {
		return conn, nil
	}
	if errors.Is(err, nats.ErrNoServers) && d.last != nil {
		err = d.last // what it is that nobody did
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return nil, outbox.Unavailable(fmt.Errorf("connect to NATS at %s: %w", t, t.hide(err)))
}

// dialer ends with ctx what nats.Connect does, which knows no context.
type dialer struct {
	ctx  context.Context
	last error         // of dialling
	stop []func() bool // what the end of ctx would do
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(d.ctx, network, address)
	if err != nil {
		d.last = err
		return nil, err
	}
	d.stop = append(d.stop, context.AfterFunc(d.ctx, func() { _ = conn.Close() }))
	return conn, nil
}

// connected has the end of ctx mean nothing any more. False: it has ended.
func (d *dialer) connected() bool {
	ok := true
	for _, stop := range d.stop {
		ok = stop() && ok
	}
	return ok
}
