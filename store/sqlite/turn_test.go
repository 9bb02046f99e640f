package sqlite

import (
	"testing"
	"time"
)

// Relays that hold the write lock much of the time pause together, at the beginning of a second;
// the others do not.
func TestBusyRelaysBreathe(t *testing.T) {
	t.Parallel()
	second := func(n float64) time.Time {
		return time.Unix(1_800_000_000, 0).Add(time.Duration(n * float64(time.Second)))
	}
	var busy, idle turns
	for range 10 {
		busy.add(second(0.5), breathless/10-time.Millisecond, time.Millisecond)
		idle.add(second(0.5), 0, breathless/20)
	}
	for at, want := range map[float64]time.Duration{1: breath + time.Millisecond, 1.1: breath - 99*time.Millisecond,
		1.2: 0} {
		if got := busy.pause(second(at)); got != want {
			t.Errorf("a busy relay pauses for %s at %.1f s, want %s", got, at, want)
		}
	}
	if got := idle.pause(second(1)); got != 0 {
		t.Errorf("an idle relay pauses for %s", got)
	}
	if got := busy.pause(second(2)); got != 0 {
		t.Errorf("one that was busy a second before pauses for %s", got)
	}
	busy.add(second(2.5), 0, breathless)
	if got := busy.pause(second(5)); got != 0 {
		t.Errorf("one that was busy long ago pauses for %s", got)
	}
}
