package relay

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

// breaker says when a worker may take a turn at a sink: not while the sink is down, but for one
// probe at a time (circuit), and not while another wants to be alone (turnstile). It also says how
// fast a backlog drains (drain).
//
// A relay has one for each of its sinks, which the tables of the sink share. It is safe for
// concurrent use. Why it is not a library's: docs/adr/0010-sinks-that-are-down.md.
type breaker struct {
	mu sync.Mutex
	circuit
	turnstile
	drain
	refusal error // the last one because of which the sink counts as unavailable
}

// ticket is a breaker's leave to take a turn.
type ticket struct {
	wait time.Duration // not yet; ask again then

	probe   bool // with a few records only
	limit   int  // of them
	outage  int  // the last one's number
	fresh   bool // it has ended so shortly ago that records may still wait by themselves
	slow    bool // who need not wait for the sink should not
	alone   bool // no other turn is taken meanwhile
	yielded bool // it has been given back for a while
}

// isOpen tells whether the sink was down when it was last heard of.
func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state != circuitClosed
}

// outage tells whether the sink counts as down, and since when.
func (b *breaker) outage(now time.Time) (since time.Time, down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.circuit.outage(now)
}

// lastRefusal returns why the sink has not acknowledged a batch, or "".
func (b *breaker) lastRefusal() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refusal == nil {
		return ""
	}
	return b.refusal.Error()
}

// answers notes that the sink has answered a ping after pings had failed.
func (b *breaker) answers() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = time.Time{}
}

// lags is SinkHealth.Lags.
func (b *breaker) lags() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.circuit.lags(time.Now())
}

// enter asks for a turn, if need be for one at which no other relay or worker of this process takes
// one (see quarantine.go). One with wait 0 is ended by leave.
func (b *breaker) enter(alone bool) *ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	wait := b.turnstile.ask(alone, now)
	if wait == 0 {
		wait = b.circuit.ask(now)
	}
	if wait > 0 {
		return &ticket{wait: wait}
	}
	b.turnstile.begin(alone)
	return &ticket{probe: b.circuit.begin(), limit: b.records, outage: b.outages, alone: alone,
		fresh: now.Sub(b.closed) < 2*partRetry, slow: now.Before(b.slow)}
}

// leave ends a turn; one that published nothing leaves the breaker as it was.
func (b *breaker) leave(p *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.yielded {
		b.release(p)
	}
}

// yield gives a turn back while its worker is busy with its database: whatever a database does, the
// other workers of the sink do not wait for it.
func (b *breaker) yield(p *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(p)
	p.yielded = true
}

// resume goes on with a turn that was yielded, and tells whether it may.
func (b *breaker) resume(p *ticket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.yielded {
		return true
	}
	if !b.free(p.alone, time.Now()) || !b.circuit.resume(p.probe) {
		return false
	}
	b.turnstile.begin(p.alone)
	p.yielded = false
	return true
}

func (b *breaker) release(p *ticket) {
	b.turnstile.end(p.alone)
	if p.probe {
		b.circuit.end()
	}
}

// report tells how a batch fared, and how long the sink took for it. It returns whether what the
// sink could not take should wait by itself because the rest of the sink may work, and whether the
// sink is down.
func (b *breaker) report(p *ticket, took time.Duration, results []outbox.Result) (isolate, down bool) {
	served, unavailable := 0, 0
	var refusal error
	for i := range results {
		class, _ := outbox.Classify(results[i].Err)
		switch {
		case results[i].Err == nil:
			served++
		case errors.Is(results[i].Err, unasked), class == outbox.ClassNotAttempted:
		case class == outbox.ClassUnavailable:
			unavailable++
			refusal = results[i].Err
		default:
			served++ // refused for its own sake: somebody was there to refuse it
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if served > 0 {
		b.answered(took, now)
	}
	b.refusal = cmp.Or(refusal, b.refusal)
	isolate, down, long := b.circuit.report(p.probe, served, unavailable, now)
	if long {
		b.paced = now
	}
	return isolate, down
}

// late notes that the sink has not answered in time.
func (b *breaker) late() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow = time.Now().Add(slowFor)
}

// recovered tells whether all of the sink works, as far as one knows.
func (b *breaker) recovered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == circuitClosed && !b.search()
}

// pace returns how long to wait after n records of a backlog so that all callers together deliver
// rate a second.
func (b *breaker) pace(n, rate int) time.Duration {
	if rate < 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	return b.wait(n, rate, now, now.Sub(b.closed))
}

// drain is the pace of a backlog that an outage has left.
type drain struct {
	paced time.Time // until when the records delivered since have used up the rate
}

// wait returns how long to wait after n records: at first for rate a second, after a minute twice
// as many, and so on. Where more is written than that, the backlog would never end.
func (d *drain) wait(n, rate int, now time.Time, since time.Duration) time.Duration {
	if d.paced.Before(now) {
		d.paced = now
	}
	doublings := min(since/time.Minute, 20)
	d.paced = d.paced.Add(time.Duration(n) * time.Second / time.Duration(rate) >> doublings)
	return d.paced.Sub(now)
}
