// Package rounds is what sinks share that publish a batch in rounds, each of calls that run side by
// side and succeed or fail as a whole.
//
// Guaranteed: of two events of a key the later one is in no other call of a round than the earlier
// one.
//
// Not guaranteed: the order between rounds, and behind an event that failed; the sink waits for a
// round, and holds keys by outbox.HeldKeys.
package rounds

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Keys are the ordering keys of a round, with the call that each is in. Two events of a key must
// not be in two calls: the later one would go out although the earlier one fails.
type Keys[C comparable] map[int64]*key[C]

type key[C comparable] struct {
	event  uuid.UUID // the key's first in the round
	call   C         // of its first delivery
	events bool      // there are several events, all in that call
	calls  bool      // there are several calls, all of that event
	closed bool      // a delivery was put off, and so is what follows
}

// Join tells whether a delivery may be in a call beside what the round has of its key. If not, it
// closes the key.
func (k Keys[C]) Join(rec *outbox.Record, call C) bool {
	if !rec.Keyed {
		return true
	}
	at := k[rec.OrderKey]
	switch {
	case at == nil:
		k[rec.OrderKey] = &key[C]{event: rec.ID, call: call}
		return true
	case at.closed:
	case !at.calls && at.call == call:
		at.events = at.events || at.event != rec.ID
	case !at.events && at.event == rec.ID: // the same event's other destinations do not wait for each other
		at.calls = true
	default:
		at.closed = true
	}
	return !at.closed
}

// Closed tells whether what follows of a key is for later rounds.
func (k Keys[C]) Closed(rec *outbox.Record) bool {
	at := k[rec.OrderKey]
	return rec.Keyed && at != nil && at.closed
}

// Close puts off a delivery and what follows of its key.
func (k Keys[C]) Close(rec *outbox.Record) {
	switch at := k[rec.OrderKey]; {
	case !rec.Keyed:
	case at == nil:
		k[rec.OrderKey] = &key[C]{closed: true}
	default:
		at.closed = true
	}
}

// Behind tells whether the round has another event of the key, which may fail yet.
func (k Keys[C]) Behind(rec *outbox.Record) bool {
	at := k[rec.OrderKey]
	return rec.Keyed && at != nil && at.event != rec.ID
}

// GrowAfter is when twice as much is tried again.
const GrowAfter = time.Minute

// Limit is how much a call may have: less after one that was too much. It grows again, because who
// has set a server's limit may have raised it, or it was something else than a limit.
type Limit struct {
	Least, Most int
	Since       time.Time // of the last change

	mu  sync.Mutex
	now int // 0: Most
}

// Get returns the limit.
func (l *Limit) Get() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == 0 {
		return l.Most
	}
	if l.now < l.Most && time.Since(l.Since) > GrowAfter {
		l.now, l.Since = min(2*l.now, l.Most), time.Now()
	}
	return l.now
}

// Shrink keeps calls below one of this size, which failed, and returns the limit of before.
func (l *Limit) Shrink(size int) (before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == 0 {
		l.now = l.Most
	}
	before = l.now
	l.now, l.Since = min(l.now, max(size/2, l.Least)), time.Now()
	return before
}

// Restore takes a Shrink back.
func (l *Limit) Restore(before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = before
}
