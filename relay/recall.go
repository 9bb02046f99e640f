package relay

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// What a worker remembers of its own publishes. A database that crashed may have forgotten the settles of its last
// moments, because their commits do not wait for the disk (up to 0.6 s with PostgreSQL's default wal_writer_delay). A
// standby that is promoted lacks those that it had not received yet. Such records are claimed again, however long the
// database was away; a sink's own memory may have run out by then. They are settled again, and not published.
//
// No other relay needs to know. Whoever takes a lane over does so in a later commit than the holder's settles, so that
// a database which still knows of the one knows of the others.
const (
	recallTime    = time.Minute // of a database that answers; twice that at most
	recallRecords = 1 << 16     // deliveries; twice that at most, 4 MB, or 16 with their index (measured)
	// An interval between two claims counts for this much at most: an outage is not time in which the database could
	// have learned anything.
	recallStep = time.Second
)

// recall is the memory of one worker, in two parts. What is published goes into the younger, and when that is full or
// old it takes the place of the other.
//
// A backlog comes in the order of its positions, and so does most of what is written. Only what is not beyond the
// furthest published position can have been published before, and is looked for.
type recall struct {
	young, old recallPart
	furthest   int64         // position that was published, of all times
	age        time.Duration // of young
	seen       time.Time     // the last sign of life of the database
}

// recallPart is a list, and an index of it that is made as far as somebody has looked something up.
type recallPart struct {
	list    []recalled
	index   map[recalled]struct{}
	indexed int // of list
}

// recalled is one delivery that a sink has taken: an operator's replay is another one.
type recalled struct {
	id          uuid.UUID
	destination uint64 // its hash, so that no name is kept
	generation  int
}

var recallSeed = maphash.MakeSeed()

func recalledOf(d *outbox.Delivery) recalled {
	return recalled{d.ID, maphash.String(recallSeed, nameOf(d)), d.Generation}
}

// answered notes that the database answers.
func (r *recall) answered(now time.Time) {
	if !r.seen.IsZero() {
		r.age += min(now.Sub(r.seen), recallStep)
	}
	r.seen = now
	if r.age >= recallTime {
		r.turnOver()
	}
}

func (r *recall) turnOver() {
	r.old, r.young = r.young, r.old
	r.young.empty()
	r.age = 0
}

// published remembers what a sink has taken.
func (r *recall) published(batch []outbox.Delivery, results []outbox.Result) {
	for i := range batch {
		if results[i].Err == nil {
			r.young.list = append(r.young.list, recalledOf(&batch[i]))
			r.furthest = max(r.furthest, batch[i].Position)
		}
	}
	if len(r.young.list) >= recallRecords {
		r.turnOver()
	}
}

func (r *recall) knows(d *outbox.Delivery) bool {
	if d.Position > r.furthest || len(r.young.list)+len(r.old.list) == 0 {
		return false
	}
	key := recalledOf(d)
	return r.young.has(key) || r.old.has(key)
}

func (p *recallPart) has(key recalled) bool {
	if p.index == nil {
		p.index = map[recalled]struct{}{}
	}
	for ; p.indexed < len(p.list); p.indexed++ {
		p.index[p.list[p.indexed]] = struct{}{}
	}
	_, ok := p.index[key]
	return ok
}

func (p *recallPart) empty() {
	clear(p.index)
	p.list, p.indexed = p.list[:0], 0
}

// strike takes out of a batch what was published before, and adds it to what its records were delivered to. owner is as
// in Relay.route.
func (r *recall) strike(batch []outbox.Delivery, owner []int) (left []outbox.Delivery, leftOwner []int, struck int) {
	first := slices.IndexFunc(batch, func(d outbox.Delivery) bool { return r.knows(&d) })
	if first < 0 {
		return batch, owner, 0
	}
	left, leftOwner = batch[:first], owner[:first]
	for i := first; i < len(batch); i++ {
		d := batch[i]
		if !r.knows(&d) {
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
