package relay

import (
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
)

// A database that is well may still refuse to record what became of an event: somebody holds its row locked, a trigger,
// a policy or a time limit says no. Such outcomes wait in the worker and are tried again; their keys wait with them,
// and all others go on. They are tried in the worker and not published again, because what was published stays
// published.
const (
	firstUnsettledRetry = time.Second
	maxUnsettledRetry   = 5 * time.Second
	// Of outcomes that may wait, before nothing more is claimed: each may be a message that was sent.
	unsettledBatches = 8
	// How many events are published to find out whether what refused a whole batch refuses others too.
	unsettledProbe = 8
)

// unsettled are the outcomes that wait in one worker.
type unsettled struct {
	waiting []waitingOutcome
	logged  time.Time
	wholly  int   // settles in a row of which nothing was taken
	why     error // of the last refusal
}

// judge notes a settle of something new. A trigger or a policy may refuse all rows, or those of a key or a tenant that
// fill a batch. The next few events tell.
func (u *unsettled) judge(refused bool) {
	if u.wholly++; !refused {
		u.wholly = 0
	}
}

type waitingOutcome struct {
	outbox.Outcome
	lane outbox.Lane // the one it was published under; once another relay holds it the outcome is that one's
	due  time.Time
}

// add keeps refused outcomes, which were to be settled under lanes.
func (u *unsettled) add(refused []outbox.Outcome, lanes []outbox.Lane, now time.Time) {
	for _, o := range refused {
		i := slices.IndexFunc(lanes, func(l outbox.Lane) bool { return l.Number == o.Record.Lane })
		if i < 0 {
			continue
		}
		pause := min(firstUnsettledRetry<<min(o.Refused, 8), maxUnsettledRetry)
		o.Refused++
		u.waiting = append(u.waiting, waitingOutcome{Outcome: o, lane: lanes[i], due: now.Add(pause)})
	}
}

// due takes out what is to be tried again, and drops what was published under a lane that is held no more.
func (u *unsettled) due(lanes []outbox.Lane, now time.Time) (again []outbox.Outcome) {
	u.waiting = slices.DeleteFunc(u.waiting, func(w waitingOutcome) bool {
		if !slices.ContainsFunc(lanes, isOf(w.lane)) {
			return true
		}
		if now.Before(w.due) {
			return false
		}
		again = append(again, w.Outcome)
		return true
	})
	return again
}
