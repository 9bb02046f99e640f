package outbox

import (
	"time"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// Backoff is how long to wait before the next attempt: Base after the first failure, Factor times longer after each
// further one, never more than Cap. Each is spread by ± Jitter (a fraction) so that what failed together does not
// return together.
type Backoff struct {
	Base   time.Duration
	Factor float64
	Cap    time.Duration
	Jitter float64
}

func (b Backoff) delay(failures int) time.Duration { return backoff.Backoff(b).Delay(failures) }
