package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
)

// Times between attempts to connect: within them Publish is answered with the last attempt's error.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = time.Second
)

// farewell bounds the closing handshake of a connection that is well.
const farewell = 2 * time.Second

// keptChannels is how many idle channels a connection keeps: as many as calls of Publish times
// exchanges of each.
const keptChannels = 32

// link is one connection. It is closed once nobody uses it and it is tainted, or with the sink.
type link struct {
	conn *amqp.Connection

	mu      sync.Mutex
	free    []*channel
	users   int
	tainted bool            // messages without an answer are on it: what it does with them is nobody's business any more
	blocked chan struct{}   // closed while RabbitMQ takes no messages
	reason  string          // why it takes none; "" while it does
	taken   map[string]bool // exchanges that have taken a message
}

// channel is an AMQP channel in confirm mode. One call of Publish uses it at a time, for one
// exchange: what closes a channel takes with it whatever is in flight there.
type channel struct {
	*amqp.Channel
	returns chan amqp.Return // those of the messages in flight: RabbitMQ sends a return before its confirm
	closed  chan *amqp.Error
}

// acquire returns the connection, made anew if there is none that works. release must be called.
func (s *Sink) acquire(ctx context.Context) (*link, error) {
	if l, err := s.current(); l != nil || err != nil {
		return l, err
	}
	select { // one connects, the others wait for it
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, interrupted(ctx)
	}
	if l, err := s.current(); l != nil || err != nil {
		return l, err
	}
	conn, err := s.dial(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.closed {
		err = errors.Join(errClosed, conn.CloseDeadline(time.Now().Add(farewell)))
	}
	if err != nil {
		if ctx.Err() == nil {
			s.wait = min(max(2*s.wait, firstWait), lastWait)
			s.retry, s.failure = time.Now().Add(s.wait), err
		}
		return nil, outbox.Unavailable(err)
	}
	s.wait, s.failure = 0, nil
	s.link = &link{conn: conn, users: 1, blocked: make(chan struct{}), taken: map[string]bool{}}
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	l := s.link
	s.inFlight.Go(func() { l.watch(blocks) })
	return l, nil
}

// dial connects, in a goroutine because a client of somebody's own may not heed ctx.
func (s *Sink) dial(ctx context.Context) (*amqp.Connection, error) {
	type dialed struct {
		conn *amqp.Connection
		err  error
	}
	done := make(chan dialed, 1)
	s.inFlight.Go(func() {
		conn, err := s.connect(ctx)
		if err == nil && ctx.Err() != nil { // nobody waits for it any more
			err = errors.Join(ctx.Err(), conn.CloseDeadline(time.Now().Add(farewell)))
		}
		done <- dialed{conn, err}
	})
	select {
	case d := <-done:
		if d.err != nil {
			return nil, fmt.Errorf("connect to RabbitMQ: %w", d.err)
		}
		return d.conn, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to RabbitMQ: %w", ctx.Err())
	}
}

// current returns the connection if there is one to use, and an error if there is to be none now.
func (s *Sink) current() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, outbox.Unavailable(errClosed)
	}
	if l := s.link; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case l.conn.IsClosed() || l.tainted && l.reason == "":
			s.link = nil
		case l.reason != "":
			return nil, l.blockedError()
		default:
			l.users++
			return l, nil
		}
	}
	if s.failure != nil && time.Now().Before(s.retry) {
		return nil, outbox.Unavailable(s.failure)
	}
	return nil, nil
}

// blockedError is the answer while RabbitMQ takes no messages. l.mu is held.
func (l *link) blockedError() error {
	return outbox.Unavailable(fmt.Errorf("RabbitMQ takes no messages at the moment: %s (a resource alarm)", l.reason))
}

// watch notes whether RabbitMQ takes messages, until the connection is closed.
func (l *link) watch(blocks <-chan amqp.Blocking) {
	for b := range blocks {
		l.mu.Lock()
		switch {
		case b.Active && l.reason == "":
			l.reason = cmp.Or(b.Reason, "blocked")
			close(l.blocked)
		case !b.Active && l.reason != "":
			l.reason = ""
			l.blocked = make(chan struct{})
		}
		over := l.over()
		l.mu.Unlock()
		if over {
			l.cut()
		}
	}
}

// blocking returns a channel that is closed when RabbitMQ takes no messages.
func (l *link) blocking() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocked
}

// refusing returns an error while RabbitMQ takes no messages.
func (l *link) refusing() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason == "" {
		return nil
	}
	return l.blockedError()
}

// over tells whether to close the connection. One that is blocked stays: RabbitMQ still has
// messages of it to read, and would be sent them again on each new one. l.mu is held.
func (l *link) over() bool { return l.tainted && l.users == 0 && l.reason == "" }

// release is the end of acquire's use. With taint the connection is not used again.
func (l *link) release(taint bool) {
	l.mu.Lock()
	l.users--
	l.tainted = l.tainted || taint
	over := l.over()
	l.mu.Unlock()
	if over {
		l.cut()
	}
}

// cut closes the connection without asking the server: whoever waits for it or is stuck writing to
// it is let go.
func (l *link) cut() { _ = l.conn.CloseDeadline(time.Now().Add(-time.Second)) }

// open returns a channel that nobody uses.
func (l *link) open() (*channel, error) {
	l.mu.Lock()
	for len(l.free) > 0 {
		c := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		if !c.IsClosed() {
			l.mu.Unlock()
			return c, nil
		}
	}
	l.mu.Unlock()
	ch, err := l.conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	return &channel{
		Channel: ch,
		returns: ch.NotifyReturn(make(chan amqp.Return, maxInFlight)),
		closed:  ch.NotifyClose(make(chan *amqp.Error, 1)),
	}, nil
}

// keep takes back a channel on which nothing is in flight.
func (l *link) keep(c *channel) {
	l.mu.Lock()
	full := len(l.free) == keptChannels
	if !full {
		l.free = append(l.free, c)
	}
	l.mu.Unlock()
	if full {
		_ = c.Close() // it has done its work
	}
}

func (l *link) hasTaken(exchange string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken[exchange]
}

func (l *link) noteTaken(exchange string, taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if taken {
		l.taken[exchange] = true
	} else {
		delete(l.taken, exchange)
	}
}
