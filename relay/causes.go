package relay

import (
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

const (
	causeEvery  = time.Minute // one line for each cause
	causesKnown = 100         // more at a time are one cause: destinations may be as many as runs
)

// causes are the reasons of failures, so that each is logged when it is new, and then once a minute with how often it
// struck. FR-005: log and continue.
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

// logFailures tells of every new cause of failures, and of every dead letter. Outcomes that the store refused are left
// out: they will be tried again, and told of then.
func (r *tableRelay) logFailures(outcomes, refused []outbox.Outcome) {
	now := time.Now()
	for i := range outcomes {
		o := &outcomes[i]
		if o.State == outbox.Delivered || len(o.Failures) == 0 {
			continue
		}
		if slices.ContainsFunc(refused, func(r outbox.Outcome) bool { return r.Record == o.Record }) {
			continue
		}
		for _, f := range o.Failures {
			attrs := []any{"table", r.cfg.name(), "destination", f.Destination, "event", o.Record.ID,
				"topic", o.Record.Topic, "attempts", o.Attempts, "error", f.Error}
			if o.State == outbox.Dead {
				r.cfg.Logger.Warn("dead letter", append(attrs, "reason", f.Reason)...)
			} else if n := r.causes.failure(cause{f.Destination, f.Error}, now); n > 0 {
				attrs = append(attrs, "retry_in", o.RetryIn.Round(time.Millisecond).String(), "count", n)
				r.cfg.Logger.Warn("delivery failed", attrs...)
			}
		}
	}
}
