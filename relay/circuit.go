package relay

import (
	"math"
	"time"
)

// circuit knows whether a sink is there. While it is not, no attempt is counted, and nothing is
// claimed for it but one probe at a time.
//
//	          nothing of a batch was taken                    its pause is over
//	closed ────────────────────────────────────► open ──────────────────────────────► probing
//	  ▲                                           ▲                                    │   │
//	  │                                           └── nothing of the probe was taken ──┘   │
//	  └────────────────────────── something of it was taken ─────────────────────────────┘
//
// A probe is of ten records at first, and each after it of twice as many, at last of a claim every
// two seconds. A sink may be down in part (a shard, an endpoint), and what it can take is behind
// what it cannot. While there is reason to believe that a part works, what a failed probe tried
// waits by itself for partRetry. Otherwise the same oldest records would be probed for ever.
//
// Beside that, a sink that answered late is slow for a while, whatever the state: who need not wait
// for it does not.
//
// It is guarded by its breaker.
type circuit struct {
	state  circuitState
	failed bool // the probe under way, so far

	since   time.Time     // of the outage
	refused time.Time     // when the sink last took nothing; zero: it answers again
	pause   time.Duration // before the next probe
	next    time.Time     // when it may begin
	closed  time.Time     // when one succeeded
	outages int           // those that lasted long enough to have left a backlog
	records int           // that a probe may bring
	part    time.Time     // when something was last taken beside something else that was not
	slow    time.Time     // until when

	took  time.Duration // by a batch, on average of the last few
	asked time.Time     // when the last one was answered
}

type circuitState int8

const (
	circuitClosed circuitState = iota
	circuitOpen
	circuitProbing
)

const (
	minProbe = 100 * time.Millisecond // between probes at first
	maxProbe = 2 * time.Second        // and after some failed; recovery is noticed within it

	// An outage shorter than this leaves no backlog that consumers would have to be protected from.
	longOutage = 5 * time.Second

	partRetry = 2 * time.Second
	// The reason to believe that a part works is a batch of which something was taken and something
	// not. For partSearch after it probes are whole claims, so many that they get past 8000 keys.
	// Once nothing was taken for partialOutage all of the sink is down, and no row is written for
	// it any more; what is tried is the first 16 batches.
	partSearch    = 10 * time.Second
	partialOutage = time.Minute
	maxPartProbe  = 250 * time.Millisecond
	wholeClaim    = math.MaxInt32

	// A probe brings so few records at first. A sink that refuses quicker than probeTime is shown
	// its next batch too.
	probeRecords = 10
	probeTime    = 100 * time.Millisecond

	slowFor = 10 * time.Second

	// Limits of the time after which a circuit without a probe no longer says that the sink is
	// down.
	minRest = 30 * time.Second
	maxRest = 10 * time.Minute

	// A sink lags if a batch takes so long. What its last batch took says nothing of it after
	// longAgo.
	lagging = time.Second
	longAgo = time.Minute
)

// ask returns how long to wait before asking for a turn again; 0: one may begin.
func (c *circuit) ask(now time.Time) time.Duration {
	switch c.state {
	case circuitProbing:
		return minProbe
	case circuitOpen:
		return max(c.next.Sub(now), 0)
	case circuitClosed:
	}
	return 0
}

// answered notes how long the sink took for a batch.
func (c *circuit) answered(took time.Duration, now time.Time) {
	if now.Sub(c.asked) > longAgo {
		c.took = took
	}
	c.took, c.asked = c.took+(took-c.took)/4, now
}

// lags is how long a batch takes at a sink that takes long, cut to 1, 2, 4, 8 … s; 0 at any other.
func (c *circuit) lags(now time.Time) (long time.Duration) {
	if now.Sub(c.asked) > longAgo {
		return 0
	}
	for step := lagging; step <= c.took; step *= 2 {
		long = step
	}
	return long
}

// outage tells whether the sink is down, and since when. Without lanes a relay cannot probe, so it
// says that its sink is available after a rest, and gets lanes to probe. The rest is as long as the
// outage was seen to last, so that a sink that stays down is tried less and less often.
func (c *circuit) outage(now time.Time) (since time.Time, down bool) {
	rest := min(max(c.refused.Sub(c.since), minRest), maxRest)
	return c.since, c.state != circuitClosed && now.Sub(c.refused) < rest
}

// begin begins a turn and tells whether it is a probe.
func (c *circuit) begin() (probe bool) {
	c.failed = false
	if c.state == circuitOpen {
		c.state = circuitProbing
	}
	return c.state == circuitProbing
}

// resume goes on with a turn, if that is still what the state asks for.
func (c *circuit) resume(probe bool) bool {
	switch {
	case c.state == circuitClosed:
		return true
	case c.state == circuitProbing || !probe:
		return false
	}
	c.state = circuitProbing
	return true
}

// end ends a probe.
func (c *circuit) end() {
	if c.state == circuitProbing {
		c.state = circuitOpen
	}
	if c.state == circuitOpen && c.failed {
		longest := maxProbe
		if c.search() {
			longest = maxPartProbe
		}
		c.probeNext(min(2*c.pause, longest), min(2*c.records, wholeClaim))
	}
}

// search tells whether to look for what a part of the sink can take, as the rest of it cannot.
func (c *circuit) search() bool { return time.Since(c.part) < partSearch }

func (c *circuit) probeNext(pause time.Duration, records int) {
	c.next, c.pause, c.records = time.Now().Add(pause), pause, records
	if c.search() {
		c.records = wholeClaim
	}
}

// report tells of how many deliveries of a batch somebody was there to take or refuse them, and of
// how many not. It returns what breaker.report does, and whether a long outage is over.
//
// A mixed batch may also be the one during which all of the sink went down. Then the next one opens
// the circuit, and what waited in vain has lost partRetry. To open it at a mixed batch would be the
// end of the healthy part: what such a batch leaves is the oldest then, and all that probes would
// find.
func (c *circuit) report(probe bool, served, unavailable int, now time.Time) (isolate, down, long bool) {
	if served > 0 && (unavailable > 0 || probe && c.failed) {
		c.part = now
	}
	if served > 0 && c.state != circuitClosed {
		c.state, c.closed = circuitClosed, now
		if long = now.Sub(c.since) >= longOutage; long {
			c.outages++
		}
	}
	if served > 0 || unavailable == 0 {
		return unavailable > 0, false, long
	}
	c.refused = now
	switch {
	case c.state == circuitClosed:
		c.state, c.since = circuitOpen, now
		c.probeNext(minProbe, probeRecords)
	case probe:
		c.failed = true
	default: // another worker's batch, which was on its way when the sink went down
	}
	return now.Sub(c.part) < partialOutage, true, false
}
