// Package backoff is how long to wait before the next attempt, and the wait. An outbox.Backoff
// converts to a Backoff of this package.
//
// Guaranteed: no wait is longer than Cap and its jitter, however many failures there were.
//
// Not guaranteed: that a configuration makes sense; package outbox checks its own.
package backoff

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is Base after the first failure, Factor times longer after each further one, never more
// than Cap, each spread by ± Jitter (a fraction).
type Backoff struct {
	Base   time.Duration
	Factor float64
	Cap    time.Duration
	Jitter float64
}

// Delay returns the wait after the given number of failures, which counts from 1.
func (b Backoff) Delay(failures int) time.Duration {
	d := float64(b.Base) * math.Pow(b.Factor, float64(max(failures, 1)-1))
	d = min(d, float64(b.Cap))
	d *= 1 + b.Jitter*(2*rand.Float64()-1)
	return time.Duration(d)
}

// Wait waits for d, and tells whether it did: false means that ctx ended before.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
