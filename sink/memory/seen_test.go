package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox"
)

// A copy is refused for one to two windows, wherever in its window the event was published, and
// whether others follow or not.
func TestWindow(t *testing.T) {
	t.Parallel()
	const window = time.Minute
	for _, tt := range []struct {
		name      string
		published time.Duration // after the window began
		forgotten time.Duration // after that
	}{
		{"at its beginning", 0, 2 * window},
		{"in the middle", window / 2, window + window/2},
		{"at its end", window - 1, window + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, busy := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					h := New(Config{Window: window})
					time.Sleep(tt.published)
					d := event(t, "c", 1)
					deliver(t, h, d)
					if busy {
						for range 10 {
							time.Sleep((tt.forgotten - 1) / 10)
							deliver(t, h, event(t, "c", 1))
						}
						time.Sleep((tt.forgotten - 1) % 10)
					} else {
						time.Sleep(tt.forgotten - 1)
					}
					wantCopy(t, h, d)
					time.Sleep(time.Nanosecond)
					deliver(t, h, d)
					wantCopy(t, h, d)
				})
			}
		})
	}
}

// Time passes for the memory even while nothing is published.
func TestForgottenInSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const window = time.Minute
		h := New(Config{Window: window})
		for range 2 {
			d := event(t, "c", 1)
			deliver(t, h, d)
			time.Sleep(2 * window)
			deliver(t, h, d)
		}
	})
}

// What a hub remembers is bounded, whatever the rate: at least the last MaxPerWindow deliveries, at
// most twice as many.
func TestMaxPerWindow(t *testing.T) {
	t.Parallel()
	const limit = 100
	h := New(Config{MaxPerWindow: limit})
	var published []outbox.Delivery
	for range 10*limit + limit/2 {
		d := event(t, "c", 1)
		deliver(t, h, d)
		published = append(published, d)
		if n := len(h.seen.current) + len(h.seen.previous); n > 2*limit {
			t.Fatalf("%d are remembered after %d", n, len(published))
		}
	}
	wantCopy(t, h, published[len(published)-limit:]...)
	deliver(t, h, published[len(published)-2*limit])
}

// A window that was ended early is followed by a whole one.
func TestEarlyEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const window = time.Minute
		h := New(Config{Window: window, MaxPerWindow: 2})
		time.Sleep(window - 1)
		a, b, c := event(t, "c", 1), event(t, "c", 1), event(t, "c", 1)
		deliver(t, h, a, b, c)
		time.Sleep(window - 1)
		wantCopy(t, h, a, b, c)
		time.Sleep(time.Nanosecond)
		wantCopy(t, h, c)
		deliver(t, h, a)
	})
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	h := New(Config{MaxPerWindow: -1})
	batch := []outbox.Delivery{event(t, "c", 1), event(t, "c", 1), event(t, "c", 1)}
	deliver(t, h, batch...)
	wantCopy(t, h, batch...)
}

// Whatever else differs between two deliveries of an event makes them two.
func TestMark(t *testing.T) {
	t.Parallel()
	s := newSeen(time.Minute, 1)
	marks := map[mark]outbox.Delivery{}
	for _, destination := range []string{"", "a", "b", "ab", "ba", "a\x00"} {
		for _, generation := range []int{0, 1, 255, 256, 65536} {
			d := outbox.Delivery{Destination: destination, Record: &outbox.Record{Generation: generation}}
			if other, ok := marks[s.mark(&d)]; ok {
				t.Errorf("(%q, %d) and (%q, %d) have the same mark", destination, generation, other.Destination, other.Generation)
			}
			marks[s.mark(&d)] = d
		}
	}
}

func wantCopy(t *testing.T, h *Hub, batch ...outbox.Delivery) {
	t.Helper()
	for i, res := range h.Publish(t.Context(), batch) {
		if res != (outbox.Result{Duplicate: true}) {
			t.Fatalf("delivery %d is answered %+v, want that it is a copy", i, res)
		}
	}
}
