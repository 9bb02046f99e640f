package memory

import (
	"encoding/binary"
	"hash/maphash"
	"time"

	"github.com/outboxrelay/outbox"
)

// seen remembers deliveries for one to two windows: in the set of the current window, and in the
// one before. A time for each would take a heap, or a sweep, to forget them one by one; here a
// whole set is dropped.
type seen struct {
	window time.Duration
	limit  int // of a set; negative: none
	seed   maphash.Seed

	began             time.Time // the current window
	current, previous map[mark]struct{}
}

// mark tells a delivery from all others: its event's id, and a hash of what differs between two
// deliveries of one event. The names themselves would be kept alive. The hash is bytes because a
// map pads a key of words: 83 bytes an event instead of 56 (measured).
type mark struct {
	id   [16]byte
	rest [8]byte
}

func newSeen(window time.Duration, limit int) *seen {
	return &seen{window: window, limit: limit, seed: maphash.MakeSeed(), began: time.Now(), current: map[mark]struct{}{}}
}

func (s *seen) mark(d *outbox.Delivery) mark {
	m := mark{id: d.ID}
	binary.NativeEndian.PutUint64(m.rest[:], maphash.Comparable(s.seed, struct {
		destination string
		generation  int
	}{d.Destination, d.Generation}))
	return m
}

func (s *seen) has(m mark) bool {
	s.turn()
	if _, ok := s.current[m]; ok {
		return true
	}
	_, ok := s.previous[m]
	return ok
}

// add follows a has.
func (s *seen) add(m mark) {
	if s.limit >= 0 && len(s.current) >= s.limit {
		s.previous, s.current, s.began = s.current, map[mark]struct{}{}, time.Now()
	}
	s.current[m] = struct{}{}
}

// turn begins the next window when it is time. The clock is the monotonic one, so setting the
// machine's clock neither forgets nor prolongs.
func (s *seen) turn() {
	switch passed := time.Since(s.began); {
	case passed < s.window:
	case passed < 2*s.window:
		// Windows follow each other without a gap: if this one began now, what was published early
		// in the last would be kept for up to three.
		s.previous, s.current, s.began = s.current, map[mark]struct{}{}, s.began.Add(s.window)
	default:
		s.previous, s.current, s.began = nil, map[mark]struct{}{}, time.Now()
	}
}
