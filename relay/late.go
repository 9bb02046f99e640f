package relay

import (
	"errors"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// A Slow sink has many receivers, and the slowest must not delay the others. So it is told how long to wait for one of
// them. What has been answered by then is settled at once. A record with an answer still to come stays with its worker,
// which claims neither it nor what is behind it in its key meanwhile, and settles it later. Its lane is not handed over
// before, and a relay that stops waits for it as for a batch: the next holder would publish it again.
const (
	latePatience = 50 * time.Millisecond
	// lateRecords is how many may be under way in a worker before it waits for whole batches: each holds its payload, and
	// is one more that a claim leaves out.
	lateRecords = 1024
)

// late are the records of one worker whose answers are still to come.
type lateAnswers struct{ waiting []*lateRecord }

type lateRecord struct {
	*outbox.Record
	lane    outbox.Lane // the one it was published under
	batch   []outbox.Delivery
	results []outbox.Result
	call    *call
}

// stillToCome returns the answer that an error stands for, or nil.
func stillToCome(err error) *late.Answer {
	var a *late.Answer
	errors.As(err, &a)
	return a
}

// setAside takes the records out of a batch that have an answer still to come. Where there is none the call is over.
func (l *lateAnswers) setAside(
	c *call, lanes []outbox.Lane, batch []outbox.Delivery, owner []int, results []outbox.Result,
) ([]outbox.Delivery, []int, []outbox.Result) {
	comes := func(r outbox.Result) bool { return stillToCome(r.Err) != nil }
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
		l.waiting = append(l.waiting, &lateRecord{Record: rec, lane: lanes[max(at, 0)], call: c,
			batch: slices.Clone(batch[i:end]), results: slices.Clone(results[i:end])}) // not all of the batch's memory
	}
	l.narrow()
	return left, leftOwner, leftResults
}

// narrow has each call need the lanes that it has records of, and no others.
func (l *lateAnswers) narrow() {
	of := map[*call][]outbox.Lane{}
	for _, r := range l.waiting {
		of[r.call] = append(of[r.call], r.lane)
	}
	for c, lanes := range of {
		c.lanes.Store(&lanes)
	}
}

// answered takes out the records whose answers have come, as one batch, and drops those whose lane is held no more.
func (l *lateAnswers) answered(
	held []outbox.Lane,
) (records []*outbox.Record, batch []outbox.Delivery, owner []int, results []outbox.Result) {
	ended := map[*call]bool{}
	l.waiting = slices.DeleteFunc(l.waiting, func(r *lateRecord) bool {
		if slices.ContainsFunc(held, isOf(r.lane)) {
			if !r.complete() {
				return false
			}
			for range r.batch {
				owner = append(owner, len(records))
			}
			records, batch, results = append(records, r.Record), append(batch, r.batch...), append(results, r.results...)
		}
		ended[r.call] = true
		return true
	})
	for _, r := range l.waiting {
		delete(ended, r.call)
	}
	for c := range ended {
		c.end()
	}
	l.narrow()
	return records, batch, owner, results
}

// complete takes over the answers that have come, and tells whether all have.
func (r *lateRecord) complete() bool {
	for i := range r.results {
		a := stillToCome(r.results[i].Err)
		if a == nil {
			continue
		}
		select {
		case r.results[i].Err = <-a.C:
		default:
			return false
		}
	}
	return true
}

// lanes returns those that records are under way of.
func (l *lateAnswers) lanes() (lanes []outbox.Lane) {
	for _, r := range l.waiting {
		lanes = append(lanes, r.lane)
	}
	return lanes
}
