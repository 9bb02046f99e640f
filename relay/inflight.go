package relay

import (
	"errors"
	"hash/maphash"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// inflight is what a worker has published and the database does not know, or may have forgotten. It
// is the one place that is asked before anything is published again: a claim leaves out what waits
// here, and a batch leaves out what a sink has taken.
//
//	           all answered             recorded                     a minute or two of a database that answers
//	unanswered ────────────► unsettled ──────────► taken, remembered ───────────────────────────────────────────► gone
//	     ▲                     │    ▲
//	     │                     └────┘ refused: once more after 1 to 5 s
//	     └── published to a sink with a Timeout, of which some receivers have not answered yet
//
// What is published to any other sink is answered and recorded within its turn, and only remembered
// here. A record whose lane another relay has taken over is dropped in any state: the outcome is
// that relay's to find.
type inflight struct {
	waiting []*flight
	taken   taken

	wholly int       // settles in a row of which the database took nothing
	why    error     // of the last refusal
	logged time.Time // when one was last told of
}

// flight is one record that waits, with what is behind it in its key.
type flight struct {
	*outbox.Record
	lane outbox.Lane // the one it was published under

	// While it is unanswered. The call is nil from then on.
	call    *call
	batch   []outbox.Delivery
	results []outbox.Result

	// While it is unsettled.
	outcome outbox.Outcome
	due     time.Time // when to try again
}

func (f *flight) unanswered() bool { return f.call != nil }

// exclude leaves what waits, and what is behind it in its key, out of a claim.
func (in *inflight) exclude(limit outbox.ClaimLimit) outbox.ClaimLimit {
	listed := outbox.HeldKeys{}
	for _, f := range in.waiting {
		switch {
		case !f.Keyed:
			limit.WithoutEvents = append(limit.WithoutEvents, f.ID)
		case !listed.Holds(f.Record):
			listed.Hold(f.Record)
			limit.WithoutKeys = append(limit.WithoutKeys, f.OrderKey)
		}
	}
	return limit
}

// A sink with a Timeout has many receivers, and the slowest must not delay the others. So it is
// told how long to wait for one of them. What has been answered by then is settled at once. A
// record with an answer still to come stays with its worker and is settled later. Its lane is not
// handed over before, and a relay that stops waits for it as for a batch: the next holder would
// publish it again.
const (
	latePatience = 50 * time.Millisecond
	// lateRecords is how many may be unanswered in a worker before it waits for whole batches: each
	// holds its payload, and is one more that a claim leaves out.
	lateRecords = 1024
)

// lateAnswer returns the answer still to come that an error stands for, or nil.
func lateAnswer(err error) *late.Answer {
	var a *late.Answer
	errors.As(err, &a)
	return a
}

// setAside takes the records out of a batch that have an answer still to come. Where there is none
// the call is over.
func (in *inflight) setAside(
	c *call, lanes []outbox.Lane, batch []outbox.Delivery, owner []int, results []outbox.Result,
) ([]outbox.Delivery, []int, []outbox.Result) {
	comes := func(r outbox.Result) bool { return lateAnswer(r.Err) != nil }
	if !slices.ContainsFunc(results, comes) {
		c.end()
		return batch, owner, results
	}
	var left []outbox.Delivery
	var leftOwner []int
	var leftResults []outbox.Result
	for i, end := 0, 0; i < len(batch); i = end {
		for end = i + 1; end < len(batch) && owner[end] == owner[i]; end++ {
		}
		if !slices.ContainsFunc(results[i:end], comes) {
			left, leftOwner = append(left, batch[i:end]...), append(leftOwner, owner[i:end]...)
			leftResults = append(leftResults, results[i:end]...)
			continue
		}
		rec := batch[i].Record
		at := slices.IndexFunc(lanes, func(l outbox.Lane) bool { return l.Number == rec.Lane })
		in.waiting = append(in.waiting, &flight{Record: rec, lane: lanes[max(at, 0)], call: c,
			batch: slices.Clone(batch[i:end]), results: slices.Clone(results[i:end])}) // not all of the batch's memory
	}
	in.narrow()
	return left, leftOwner, leftResults
}

// narrow has each call need the lanes that it has records of, and no others.
func (in *inflight) narrow() {
	of := map[*call][]outbox.Lane{}
	for _, f := range in.waiting {
		if f.unanswered() {
			of[f.call] = append(of[f.call], f.lane)
		}
	}
	for c, lanes := range of {
		c.lanes.Store(&lanes)
	}
}

// answered takes out the records whose answers have all come, as one batch, and drops the
// unanswered ones whose lane is held no more.
func (in *inflight) answered(
	held []outbox.Lane,
) (records []*outbox.Record, batch []outbox.Delivery, owner []int, results []outbox.Result) {
	ended := map[*call]bool{}
	in.waiting = slices.DeleteFunc(in.waiting, func(f *flight) bool {
		if !f.unanswered() {
			return false
		}
		if slices.ContainsFunc(held, isOf(f.lane)) {
			if !f.allAnswered() {
				return false
			}
			for range f.batch {
				owner = append(owner, len(records))
			}
			records, batch, results = append(records, f.Record), append(batch, f.batch...), append(results, f.results...)
		}
		ended[f.call] = true
		return true
	})
	for _, f := range in.waiting {
		delete(ended, f.call)
	}
	for c := range ended {
		c.end()
	}
	in.narrow()
	return records, batch, owner, results
}

// allAnswered takes over the answers that have come, and tells whether all have.
func (f *flight) allAnswered() bool {
	for i := range f.results {
		a := lateAnswer(f.results[i].Err)
		if a == nil {
			continue
		}
		select {
		case f.results[i].Err = <-a.C:
		default:
			return false
		}
	}
	return true
}

// lingering returns the lanes of the records whose answers are still to come, one for each record.
func (in *inflight) lingering() (lanes []outbox.Lane) {
	for _, f := range in.waiting {
		if f.unanswered() {
			lanes = append(lanes, f.lane)
		}
	}
	return lanes
}

// oldest is when the first turn began of which an answer is still to come.
func (in *inflight) oldest() (began time.Time) {
	for _, f := range in.waiting {
		if f.unanswered() && (began.IsZero() || f.call.began.Before(began)) {
			began = f.call.began
		}
	}
	return began
}

// giveUp ends the calls of what is still unanswered.
func (in *inflight) giveUp() {
	for _, f := range in.waiting {
		if f.unanswered() {
			f.call.end()
		}
	}
}

// A database that is well may still refuse to record what became of an event: somebody holds its
// row locked, a trigger, a policy or a time limit says no. Such outcomes wait in the worker and are
// tried again; their keys wait with them, and all others go on. They are tried in the worker and
// not published again, because what was published stays published.
const (
	firstUnsettledRetry = time.Second
	maxUnsettledRetry   = 5 * time.Second
	// Of outcomes that may wait, before nothing more is claimed: each may be a message that was
	// sent.
	unsettledBatches = 8
	// How many events are published to find out whether what refused a whole batch refuses others
	// too.
	unsettledProbe = 8
)

// refused keeps outcomes that the database did not record, which were to be settled under lanes.
func (in *inflight) refused(outcomes []outbox.Outcome, lanes []outbox.Lane, now time.Time) {
	for _, o := range outcomes {
		i := slices.IndexFunc(lanes, func(l outbox.Lane) bool { return l.Number == o.Record.Lane })
		if i < 0 {
			continue
		}
		pause := min(firstUnsettledRetry<<min(o.Refused, 8), maxUnsettledRetry)
		o.Refused++
		in.waiting = append(in.waiting, &flight{Record: o.Record, lane: lanes[i], outcome: o, due: now.Add(pause)})
	}
}

// due takes out what is to be settled again, and drops what was published under a lane that is held
// no more.
func (in *inflight) due(lanes []outbox.Lane, now time.Time) (again []outbox.Outcome) {
	in.waiting = slices.DeleteFunc(in.waiting, func(f *flight) bool {
		switch {
		case f.unanswered():
			return false
		case !slices.ContainsFunc(lanes, isOf(f.lane)):
			return true
		case now.Before(f.due):
			return false
		}
		again = append(again, f.outcome)
		return true
	})
	return again
}

// unsettled is how many outcomes wait.
func (in *inflight) unsettled() int { return len(in.waiting) - len(in.lingering()) }

// noteSettle notes a settle of something new. A trigger or a policy may refuse all rows, or those
// of a key or a tenant that fill a batch. The next few events tell.
func (in *inflight) noteSettle(refused bool) {
	if in.wholly++; !refused {
		in.wholly = 0
	}
}

// What a worker remembers of its own publishes. A database that crashed may have forgotten the
// settles of its last moments, because their commits do not wait for the disk (up to 0.6 s with
// PostgreSQL's default wal_writer_delay). A standby that is promoted lacks those that it had not
// received yet. Such records are claimed again, however long the database was away; a sink's own
// memory may have run out by then. They are settled again, and not published.
//
// No other relay needs to know. Whoever takes a lane over does so in a later commit than the
// holder's settles, so that a database which still knows of the one knows of the others.
const (
	takenTime    = time.Minute // of a database that answers; twice that at most
	takenRecords = 1 << 16     // deliveries; twice that at most, 4 MB, or 16 with their index (measured)
	// An interval between two claims counts for this much at most: an outage is not time in which
	// the database could have learned anything.
	takenStep = time.Second
)

// taken is what sinks have taken from one worker, in two parts. What is published goes into the
// younger part. When that is full or old it takes the place of the other.
//
// A backlog comes in the order of its positions, and so does most of what is written. Only what is
// not beyond the furthest published position can have been published before, and is looked for.
type taken struct {
	young, old takenPart
	furthest   int64         // position that was published, of all times
	age        time.Duration // of young
	seen       time.Time     // the last sign of life of the database
}

// takenPart is a list, and an index of it that is made as far as somebody has looked something up.
type takenPart struct {
	list    []deliveryKey
	index   map[deliveryKey]struct{}
	indexed int // of list
}

// deliveryKey is one delivery that a sink has taken: an operator's replay is another one.
type deliveryKey struct {
	id          uuid.UUID
	destination uint64 // its hash, so that no name is kept
	generation  int
}

var takenSeed = maphash.MakeSeed()

func deliveryKeyOf(d *outbox.Delivery) deliveryKey {
	return deliveryKey{d.ID, maphash.String(takenSeed, nameOf(d)), d.Generation}
}

// answered notes that the database answers.
func (m *taken) answered(now time.Time) {
	if !m.seen.IsZero() {
		m.age += min(now.Sub(m.seen), takenStep)
	}
	m.seen = now
	if m.age >= takenTime {
		m.turnOver()
	}
}

func (m *taken) turnOver() {
	m.old, m.young = m.young, m.old
	m.young.empty()
	m.age = 0
}

// published remembers what a sink has taken.
func (m *taken) published(batch []outbox.Delivery, results []outbox.Result) {
	for i := range batch {
		if results[i].Err == nil {
			m.young.list = append(m.young.list, deliveryKeyOf(&batch[i]))
			m.furthest = max(m.furthest, batch[i].Position)
		}
	}
	if len(m.young.list) >= takenRecords {
		m.turnOver()
	}
}

func (m *taken) knows(d *outbox.Delivery) bool {
	if d.Position > m.furthest || len(m.young.list)+len(m.old.list) == 0 {
		return false
	}
	key := deliveryKeyOf(d)
	return m.young.has(key) || m.old.has(key)
}

func (p *takenPart) has(key deliveryKey) bool {
	if p.index == nil {
		p.index = map[deliveryKey]struct{}{}
	}
	for ; p.indexed < len(p.list); p.indexed++ {
		p.index[p.list[p.indexed]] = struct{}{}
	}
	_, ok := p.index[key]
	return ok
}

func (p *takenPart) empty() {
	clear(p.index)
	p.list, p.indexed = p.list[:0], 0
}

// strike takes out of a batch what was published before, and adds it to what its records were
// delivered to. owner is as in Relay.route.
func (m *taken) strike(batch []outbox.Delivery, owner []int) (left []outbox.Delivery, leftOwner []int, struck int) {
	first := slices.IndexFunc(batch, func(d outbox.Delivery) bool { return m.knows(&d) })
	if first < 0 {
		return batch, owner, 0
	}
	left, leftOwner = batch[:first], owner[:first]
	for i := first; i < len(batch); i++ {
		d := batch[i]
		if !m.knows(&d) {
			left, leftOwner = append(left, d), append(leftOwner, owner[i])
			continue
		}
		if name := nameOf(&d); !slices.Contains(d.DeliveredTo, name) {
			d.DeliveredTo = append(slices.Clip(d.DeliveredTo), name)
		}
		struck++
	}
	return left, leftOwner, struck
}
