package backoff

import (
	"context"
	"math"
	"testing"
	"time"
)

// ADR-004's defaults: base 5 s, doubling.
func TestBackoffGrowsToItsCap(t *testing.T) {
	b := Backoff{Base: 5 * time.Second, Factor: 2, Cap: time.Minute}
	for failures, want := range map[int]time.Duration{
		-1: 5 * time.Second, 0: 5 * time.Second, 1: 5 * time.Second, 2: 10 * time.Second, 4: 40 * time.Second, 5: time.Minute,
		6: time.Minute, 5000: time.Minute, math.MaxInt: time.Minute, // 2^5000 is no number any more
	} {
		if got := b.Delay(failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
}

func TestBackoffJitterSpreadsBothWays(t *testing.T) {
	b := Backoff{Base: time.Second, Factor: 2, Cap: time.Minute, Jitter: 0.2}
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := b.Delay(1)
		low, high = min(low, d), max(high, d)
	}
	// A thousand even draws all missing the outer quarter of one side: 0.875^1000, never.
	if low < 800*time.Millisecond || low > 850*time.Millisecond || high > 1200*time.Millisecond ||
		high < 1150*time.Millisecond {
		t.Errorf("delays from %s to %s, want them to fill 0.8 s to 1.2 s", low, high)
	}
}

func TestWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if !Wait(ctx, time.Millisecond) {
		t.Error("it was ended by nothing, and did not wait")
	}
	cancel()
	if Wait(ctx, time.Hour) {
		t.Error("it waited an hour after the end")
	}
}
