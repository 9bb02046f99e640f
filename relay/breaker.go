package relay

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

// breaker stops work for a sink that is down: no attempt is counted, and nothing is claimed for it but one probe at a
// time. A probe finds out whether the sink, or a part of it, is there again. It is of ten records at first, and at
// last of a claim every two seconds. The breaker is opened by the first batch of which the sink took nothing, and
// closed by the first probe of which it took something.
//
// A relay has one for each of its sinks, which the tables of the sink share. It is safe for concurrent use. Why it is
// not a library's: docs/adr/0010-sinks-that-are-down.md.
type breaker struct {
	mu      sync.Mutex
	open    bool
	probing bool
	failed  bool          // the probe of now, so far
	since   time.Time     // of the outage
	pause   time.Duration // before the next probe
	next    time.Time     // when it may begin
	closed  time.Time     // when one succeeded
	outages int           // those that lasted long enough to have left a backlog
	records int           // that it may bring
	part    time.Time     // when something was last taken beside something else that was not
	paced   time.Time     // until when the records delivered since an outage have used up its RecoveryRate

	turns    int       // in flight
	alone    bool      // one that wants to be the only one is
	reserved time.Time // until when no other begins, because such a one waits for those in flight
}

// isOpen tells whether the sink was down when it was last heard of.
func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

const (
	minProbe = 100 * time.Millisecond // between probes at first
	maxProbe = 2 * time.Second        // and after some failed; recovery is noticed within it
	// An outage shorter than this leaves no backlog that consumers would have to be protected from.
	longOutage = 5 * time.Second
	// A sink may be down in part (a shard, an endpoint), and what it can take is behind what it cannot. So a probe is
	// twice as large as the one before. While there is reason to believe that a part works, what a failed probe tried
	// waits by itself for partRetry. Otherwise the same oldest records would be probed for ever.
	partRetry = 2 * time.Second
	// The reason is a batch of which something was taken and something not. For partSearch after it probes are whole
	// claims, so many that they get past 8000 keys. Once nothing was taken for partialOutage all of the sink is down,
	// and no row is written for it any more; what is tried is the first 16 batches.
	partSearch    = 10 * time.Second
	partialOutage = time.Minute
	maxPartProbe  = 250 * time.Millisecond
	wholeClaim    = math.MaxInt32
	// A probe brings so few records at first. A sink that refuses quicker than probeTime is shown its next batch too.
	probeRecords = 10
	probeTime    = 100 * time.Millisecond
	// aloneWait is how often to ask for a turn while somebody wants to be alone.
	aloneWait = 5 * time.Millisecond
)

// ticket is a breaker's leave to take a turn.
type ticket struct {
	wait   time.Duration // not yet; ask again then
	probe  bool          // with a few records only
	limit  int           // of them
	outage int           // the last one's number
	fresh  bool          // it has ended so shortly ago that records may still wait by themselves
	alone  bool          // no other turn is taken meanwhile
	rests  bool          // it has been given back for a while
}

// enter asks for a turn, if need be for one at which no other relay or worker of this process takes one (see
// quarantine.go). One with wait 0 is ended by leave.
func (b *breaker) enter(alone bool) *ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case b.alone || !alone && now.Before(b.reserved):
		return &ticket{wait: aloneWait}
	case alone && b.turns > 0:
		b.reserved = now.Add(10 * aloneWait) // it asks again before; a time needs no taking back if it does not
		return &ticket{wait: aloneWait}
	case b.open && b.probing:
		return &ticket{wait: minProbe}
	case b.open && now.Before(b.next):
		return &ticket{wait: b.next.Sub(now)}
	}
	b.turns++
	b.alone, b.probing, b.failed = alone, b.open, false
	fresh := now.Sub(b.closed) < 2*partRetry
	return &ticket{probe: b.open, limit: b.records, outage: b.outages, fresh: fresh, alone: alone}
}

// leave ends a turn; one that published nothing leaves the breaker as it was.
func (b *breaker) leave(p *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.rests {
		b.release(p)
	}
}

// rest gives a turn back while its worker is busy with its database: whatever a database does, the other workers of the
// sink do not wait for it.
func (b *breaker) rest(p *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(p)
	p.rests = true
}

// resume goes on with a turn that rested, and tells whether it may.
func (b *breaker) resume(p *ticket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !p.rests:
		return true
	case b.alone || p.alone && b.turns > 0 || time.Now().Before(b.reserved):
		return false
	case b.open && (!p.probe || b.probing):
		return false
	}
	b.turns++
	b.alone, b.probing, p.rests = p.alone, b.open, false
	return true
}

func (b *breaker) release(p *ticket) {
	b.turns--
	if p.alone {
		b.alone, b.reserved = false, time.Time{}
	}
	if !p.probe {
		return
	}
	b.probing = false
	if b.open && b.failed {
		longest := maxProbe
		if b.search() {
			longest = maxPartProbe
		}
		b.probeNext(min(2*b.pause, longest), min(2*b.records, wholeClaim))
	}
}

// search tells whether to look for what a part of the sink can take, as the rest of it cannot.
func (b *breaker) search() bool { return time.Since(b.part) < partSearch }

func (b *breaker) probeNext(pause time.Duration, records int) {
	b.next, b.pause, b.records = time.Now().Add(pause), pause, records
	if b.search() {
		b.records = wholeClaim
	}
}

// report tells how a batch fared. It returns whether what the sink could not take should wait by itself because the
// rest of the sink may work, and whether the sink is down.
//
// A mixed batch may also be the one during which all of the sink went down. Then the next one opens the breaker, and
// what waited in vain has lost partRetry. To open it at a mixed batch would be the end of the healthy part: what such a
// batch leaves is the oldest then, and all that probes would find.
func (b *breaker) report(p *ticket, results []outbox.Result) (isolate, down bool) {
	unavailable, served := 0, 0
	for i := range results {
		if results[i].Err == nil {
			served++
		} else if errors.Is(results[i].Err, unasked) {
			continue
		} else if class, _ := outbox.Classify(results[i].Err); class == outbox.ClassUnavailable {
			unavailable++
		} else if class != outbox.ClassNotAttempted {
			served++ // refused for its own sake: somebody was there to refuse it
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if served > 0 && (unavailable > 0 || p.probe && b.failed) {
		b.part = now
	}
	if served > 0 && b.open {
		b.close(now)
	}
	if served > 0 || unavailable == 0 {
		return unavailable > 0, false
	}
	switch {
	case !b.open:
		b.open, b.since = true, now
		b.probeNext(minProbe, probeRecords)
	case p.probe:
		b.failed = true
	default: // another worker's batch, which was on its way when the sink went down
	}
	return now.Sub(b.part) < partialOutage, true
}

// recovered tells whether all of the sink works, as far as one knows.
func (b *breaker) recovered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open && !b.search()
}

func (b *breaker) close(now time.Time) {
	b.open, b.closed = false, now
	if now.Sub(b.since) >= longOutage {
		b.outages++
		b.paced = now
	}
}

// pace returns how long to wait after n records so that all callers together deliver rate a second, after a minute
// twice as many, and so on. Where more is written than that, the backlog would never end.
func (b *breaker) pace(n, rate int) time.Duration {
	if rate < 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.paced.Before(now) {
		b.paced = now
	}
	doublings := min(now.Sub(b.closed)/time.Minute, 20)
	b.paced = b.paced.Add(time.Duration(n) * time.Second / time.Duration(rate) >> doublings)
	return b.paced.Sub(now)
}
