package outbox

import (
	"sync"
	"time"
)

// Breaker stops work for a sink that is down: nothing is claimed for it, no attempt is counted, and a few records at a time probe whether it is there
// again. It is opened by the first batch of which the sink took nothing, and closed by the first probe of which it took something.
// Relays that share a sink share its Breaker. It is safe for concurrent use.
//
// sony/gobreaker counts failures of calls over intervals; a batch has one answer a delivery and the relay needs to know how to go on (how much
// to claim, how fast to drain), which is most of what is below.
type Breaker struct {
	mu      sync.Mutex
	open    bool
	probing bool
	since   time.Time     // of the outage
	pause   time.Duration // before the next probe
	next    time.Time     // when it may begin
	outages int           // those that lasted long enough to have left a backlog
	mixed   time.Time     // when a batch was last taken in part
	partial bool          // that was shortly before it opened: what it is open for may be a part of the sink only
	paced   time.Time     // until when the records delivered since an outage have used up its RecoveryRate

	turns    int       // in flight
	alone    bool      // one that wants to be the only one is
	reserved time.Time // until when no other begins, because such a one waits for those in flight
}

// NewBreaker returns a closed breaker.
func NewBreaker() *Breaker { return &Breaker{} }

// Open tells whether the sink was down when it was last heard of.
func (b *Breaker) Open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

const (
	minProbe = 100 * time.Millisecond // between probes at first
	maxProbe = 2 * time.Second        // and after some failed; recovery is noticed within it
	// An outage shorter than this leaves no backlog that consumers would have to be protected from.
	longOutage = 5 * time.Second
	// A sink that took a batch in part so shortly before it took nothing may be down in part (a shard, a channel). What is probed then waits by itself
	// afterwards, or the same oldest records would be probed for ever, and the probes are whole batches, to get past them to what can be delivered.
	partialOutage = 30 * time.Second
	// partRetry is how long such records wait: some probes' time, so that these get past 8000 keys of the part that is down.
	partRetry    = 2 * time.Second
	maxPartProbe = partRetry / 8
	// aloneWait is how often to ask for a turn while somebody wants to be alone.
	aloneWait = 5 * time.Millisecond
)

// ticket is a breaker's leave to take a turn.
type ticket struct {
	wait   time.Duration // not yet; ask again then
	probe  bool          // with a few records only
	part   bool          // or with a batch, because a part of the sink may be there
	outage int           // the last one's number
	alone  bool          // no other turn is taken meanwhile
}

// enter asks for a turn, if need be for one at which no other relay or worker of this process takes one (see trial.go). One with wait 0 is ended by leave.
func (b *Breaker) enter(alone bool) ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case b.alone || !alone && now.Before(b.reserved):
		return ticket{wait: aloneWait}
	case alone && b.turns > 0:
		b.reserved = now.Add(10 * aloneWait) // it asks again before; a time needs no taking back if it does not
		return ticket{wait: aloneWait}
	case b.open && b.probing:
		return ticket{wait: minProbe}
	case b.open && now.Before(b.next):
		return ticket{wait: b.next.Sub(now)}
	}
	b.turns++
	b.alone, b.probing = alone, b.open
	return ticket{probe: b.open, part: b.open && b.partial, outage: b.outages, alone: alone}
}

// leave ends a turn; one that published nothing leaves the breaker as it was.
func (b *Breaker) leave(p ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turns--
	if p.alone {
		b.alone, b.reserved = false, time.Time{}
	}
	if p.probe {
		b.probing = false
	}
}

// report tells how a batch fared. It returns whether what the sink could not take should wait by itself because the rest of the sink works, and whether
// the sink is down.
//
// A mixed batch may also be the one during which all of the sink went down. Then the next one opens the breaker, and what waited in vain has lost partRetry.
// To open it at the first mixed batch would be the end of the healthy part: what that batch left is the oldest then, and all that probes would find.
func (b *Breaker) report(p ticket, results []Result) (isolate, down bool) {
	unavailable, served := 0, 0
	for i := range results {
		if results[i].Err == nil {
			served++
		} else if class, _ := Classify(results[i].Err); class == ClassUnavailable {
			unavailable++
		} else if class != ClassNotAttempted {
			served++ // refused for its own sake: somebody was there to refuse it
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if unavailable == 0 {
		if served > 0 && b.open {
			b.close(now)
		}
		return false, false
	}
	if served > 0 {
		b.mixed = now
		if b.open {
			b.close(now)
		}
		return true, false
	}
	switch {
	case !b.open:
		b.open, b.since, b.pause = true, now, minProbe
		b.partial = now.Sub(b.mixed) < partialOutage
	case p.probe:
		longest := maxProbe
		if b.partial {
			longest = maxPartProbe
		}
		b.pause = min(2*b.pause, longest)
	default:
		return b.partial, true // another worker's batch, which was on its way when the sink went down
	}
	b.next = now.Add(b.pause)
	return b.partial, true
}

func (b *Breaker) close(now time.Time) {
	b.open = false
	if now.Sub(b.since) >= longOutage {
		b.outages++
		b.paced = now
	}
}

// pace returns how long to wait after n records so that all callers together deliver rate a second.
func (b *Breaker) pace(n, rate int) time.Duration {
	if rate < 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.paced.Before(now) {
		b.paced = now
	}
	b.paced = b.paced.Add(time.Duration(n) * time.Second / time.Duration(rate))
	return b.paced.Sub(now)
}
