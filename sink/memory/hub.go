// Package memory publishes events to subscribers in the same process: the destination is a
// channel's name, and no broker runs.
//
// # What is guaranteed
//
//   - A delivery that was answered without error was handed to every listener of its channel,
//     before the answer.
//   - A second copy of a delivery (same event id, destination and generation) within Config.Window
//     of the first is refused, whichever relay of this process sends it, unless Config.MaxPerWindow
//     others came in between. An operator's replay raises the generation and gets through.
//   - Deliveries of one Publish go out in the order of the batch. All listeners of a channel hear
//     its messages in one order.
//
// # What is not
//
//   - It ends with the process. The relay and who listens must be in the same one (outbox serve,
//     outbox dev, or a program of yours): what another process relays is heard by nobody here.
//     Several relays that share a database need a broker.
//   - Nothing is kept. As with Redis Pub/Sub, a message reaches whoever listens at that moment, and
//     one that nobody hears is delivered all the same.
//   - What was published is forgotten with the process. Copies of what it published before are let
//     through after a restart; those who had heard it are gone too.
//
// # What it costs
//
// About 1 µs for an event with 700 bytes of payload and one listener, half of it for building the
// message. It also costs 56 bytes for as long as it is remembered. At 1000 events/s up to 14 MB in
// the default window, and at any rate no more than 28 MB. That memory is given back by the first
// publish after the windows have passed.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/dedup"
)

// Config configures a Hub. Zero means the default in parentheses.
type Config struct {
	// Window is how long a copy of a delivery is refused at least; twice that at most (2 min).
	// Negative remembers nothing. It must outlast whatever can lie between two attempts: the
	// relay's PublishTimeout, LeaseTTL.
	Window time.Duration
	// MaxPerWindow ends a window early when so many deliveries were published in it (250,000): at
	// 20,000 a second a copy is then refused for at least 12 s. Up to twice as many are remembered.
	// Negative is no limit.
	MaxPerWindow int
	// Envelope builds the message (outbox.CloudEvent).
	Envelope outbox.Envelope
}

func (c Config) withDefaults() Config {
	c.Window = cmp.Or(c.Window, dedup.DefaultWindow)
	c.MaxPerWindow = cmp.Or(c.MaxPerWindow, 250_000)
	return c
}

// Hub is a sink and the subscriber that hears it. It runs nothing of its own: listeners are called
// by Publish. It is safe for concurrent use.
//
// Publish fails only as a whole: once ctx has ended or the Hub is closed, what has not gone out is
// answered with an error of class outbox.ClassUnavailable. A panic of the envelope or of a listener
// is passed on, for the relay to find out whose event it was; that event is not remembered.
type Hub struct {
	envelope outbox.Envelope

	// telling is held for one delivery: from asking whether it is a copy until its listeners have
	// been called. It is not mu: a listener may hold a lock of its own that its owner also holds
	// while subscribing.
	telling sync.Mutex
	seen    *seen // nil: remember nothing

	mu       sync.Mutex // taken after telling, if both are
	channels map[string][]*member
	closed   bool
}

// member is one subscription. Its list is replaced, not changed, when one leaves: it may be in use.
type member struct{ listener outbox.Listener }

// New returns a Hub that nobody listens to yet.
func New(cfg Config) *Hub {
	cfg = cfg.withDefaults()
	h := &Hub{envelope: cfg.Envelope, channels: map[string][]*member{}}
	if cfg.Window > 0 {
		h.seen = newSeen(cfg.Window, cfg.MaxPerWindow)
	}
	return h
}

// Publish implements outbox.Sink.
func (h *Hub) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	results := make([]outbox.Result, len(batch))
	var message []byte
	for i := range batch {
		if err := ctx.Err(); err != nil {
			err = outbox.Unavailable(fmt.Errorf("publish to memory: %w", err))
			for ; i < len(batch); i++ {
				results[i].Err = err
			}
			break
		}
		message = batch[i].AppendMessage(message[:0], h.envelope)
		results[i] = h.deliver(&batch[i], message)
	}
	return results
}

var errClosed = errors.New("the hub is closed")

// deliver takes telling for a single delivery and not for the batch, so that stop, and other
// relays, wait for microseconds.
func (h *Hub) deliver(d *outbox.Delivery, message []byte) outbox.Result {
	var m mark
	if h.seen != nil {
		m = h.seen.mark(d)
	}
	h.telling.Lock()
	defer h.telling.Unlock()
	members, closed := h.members(d.Destination)
	if closed {
		return outbox.Result{Err: outbox.Unavailable(fmt.Errorf("publish to memory: %w", errClosed))}
	}
	if h.seen != nil && h.seen.has(m) {
		return outbox.Result{Duplicate: true}
	}
	if len(members) > 0 {
		// Theirs to keep; one buffer for the batch would stay in memory for the smallest message
		// kept of it.
		message = bytes.Clone(message)
		for _, one := range members {
			one.listener.Message(message)
		}
	}
	if h.seen != nil {
		h.seen.add(m) // not before: if a listener panics, the next attempt must not be refused as a copy
	}
	return outbox.Result{}
}

func (h *Hub) members(channel string) (members []*member, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.channels[channel], h.closed
}

// Subscribe implements outbox.Subscriber. It is acknowledged at once, without looking at ctx,
// unless the Hub is closed.
//
// Listeners of one channel are handed the same bytes, to keep but not to change. A listener may be
// called before Subscribe has returned. It may subscribe, but neither publish nor stop a
// subscription while it is being called: it would wait for itself. While it is called, no Publish
// of the Hub gets on. stop may be called several times, but not with a lock held that the listener
// needs.
func (h *Hub) Subscribe(_ context.Context, channel string, l outbox.Listener) (acknowledged bool, stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false, func() {}
	}
	m := &member{l}
	h.channels[channel] = append(h.channels[channel], m)
	return true, func() { h.leave(channel, m) }
}

// leave returns after the last call of m's listener.
func (h *Hub) leave(channel string, m *member) {
	h.mu.Lock()
	left := slices.DeleteFunc(slices.Clone(h.channels[channel]), func(other *member) bool { return other == m })
	if len(left) > 0 {
		h.channels[channel] = left
	} else {
		delete(h.channels, channel)
	}
	h.mu.Unlock()
	h.telling.Lock() // a call that has begun is over when this is free
	defer h.telling.Unlock()
}

// heard returns how many channels somebody listens to.
func (h *Hub) heard() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.channels)
}

// Abilities implements outbox.Able.
func (h *Hub) Abilities() outbox.Abilities { return outbox.Abilities{Ping: h.ping} }

// ping returns nil, or an error of class outbox.ClassUnavailable once the Hub is closed.
func (h *Hub) ping(context.Context) error {
	if h.isClosed() {
		return outbox.Unavailable(fmt.Errorf("ping memory: %w", errClosed))
	}
	return nil
}

func (h *Hub) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// Close tells every listener, by Lost, that nothing more will come. It returns after their last
// calls, and always nil. Who shares a Hub closes it once all its relays have ended: a Publish
// afterwards, or during Close, is answered as unavailable.
func (h *Hub) Close() error {
	h.telling.Lock() // before mu, or a stop that comes in between would return before its listener's Lost
	defer h.telling.Unlock()
	h.mu.Lock()
	channels := h.channels
	h.channels, h.closed = map[string][]*member{}, true
	h.mu.Unlock()
	for _, members := range channels {
		for _, m := range members {
			m.listener.Lost()
		}
	}
	return nil
}

// Func returns an outbox.Listener that calls message for each message, and does nothing else.
// message must not block.
func Func(message func([]byte)) outbox.Listener { return listenerFunc(message) }

type listenerFunc func([]byte)

func (f listenerFunc) Message(message []byte) { f(message) }

// Lost does nothing: a Hub loses nothing before it is closed.
func (f listenerFunc) Lost() {}

func (f listenerFunc) Resumed() {}
