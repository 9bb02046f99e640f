package relay

import (
	"sync"
	"time"
)

const (
	causeEvery  = time.Minute // one line for each cause
	causesKnown = 100         // more at a time are one cause: destinations may be as many as runs
)

// causes are the reasons of failures, so that each is logged when it is new, and then once a minute
// with how often it struck. FR-005: log and continue.
type causes struct {
	mu    sync.Mutex
	known map[cause]*causeCount
}

// cause is where a delivery failed and what was answered.
type cause struct{ destination, text string }

type causeCount struct {
	logged time.Time
	since  int // failures that no line has told of
}

// failure counts one and returns how many a line has to tell of now: 0, or at least this one.
func (c *causes) failure(of cause, now time.Time) (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[cause]*causeCount{}
	}
	n, ok := c.known[of]
	if !ok {
		if len(c.known) >= causesKnown {
			c.forget(now)
		}
		if len(c.known) >= causesKnown {
			of = cause{}
			n = c.known[of]
		}
		if n == nil {
			n = &causeCount{}
			c.known[of] = n
		}
	}
	n.since++
	if now.Sub(n.logged) < causeEvery {
		return 0
	}
	count, n.since, n.logged = n.since, 0, now
	return count
}

// forget drops the causes that have not struck lately.
func (c *causes) forget(now time.Time) {
	for of, n := range c.known {
		if n.since == 0 && now.Sub(n.logged) >= causeEvery {
			delete(c.known, of)
		}
	}
}
