package relay

import (
	"context"
	"errors"
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

// refused keeps what the database did not take of a settle, and tells about it once a minute.
func (w *worker) refused(refusal *outbox.RefusedError, lanes []outbox.Lane) {
	now := time.Now()
	w.unsettled.why = refusal.Err
	w.unsettled.add(refusal.Outcomes, lanes, now)
	if len(refusal.Outcomes) == 0 || now.Sub(w.unsettled.logged) < time.Minute && !w.unsettled.logged.IsZero() {
		return
	}
	w.unsettled.logged = now
	rec := refusal.Outcomes[0].Record
	w.cfg.Logger.Warn("the database does not record what became of some events; they and their keys wait, "+
		"the others go on",
		"table", w.cfg.name(), "worker", w.number, "waiting", len(w.unsettled.waiting), "event", rec.ID,
		"key", rec.AggregateID, "error", refusal.Err)
}

// settleAgain tries what the database refused before and is due. Nothing is published for it.
func (w *worker) settleAgain(ctx context.Context, lanes []outbox.Lane) error {
	if by, _ := w.stoppedBy(); by != w && len(w.unsettled.waiting) == 0 {
		return nil
	}
	again := w.unsettled.due(lanes, time.Now())
	if by, why := w.stoppedBy(); by == w && len(again) == 0 {
		if len(w.unsettled.waiting) > 0 {
			return errors.New(why)
		}
		w.records() // other relays have what waited
	}
	if len(again) > 0 {
		limited, cancel := context.WithTimeout(ctx, w.cfg.DatabaseTimeout)
		defer cancel()
		settled, err := w.store.Settle(limited, w.owner, lanes, again)
		var refusal *outbox.RefusedError
		switch {
		case errors.As(err, &refusal) && !refusal.Whole:
			w.refused(refusal, lanes)
		case err != nil:
			w.unsettled.add(again, lanes, time.Now())
			if refusal != nil {
				w.stops(refusal)
			}
			return err
		}
		w.records()
		if settled != (outbox.Settled{}) {
			w.unsettled.wholly = 0
		}
		w.report(outbox.BatchReport{Table: w.cfg.name(), Settled: settled})
	}
	if len(w.unsettled.waiting) >= unsettledBatches*w.cfg.BatchRecords {
		return errors.New("settle: too many outcomes that the database does not record, so nothing is claimed; " +
			"the log has why")
	}
	return nil
}

// stops has the table's workers publish nothing until settles are taken again: the database is well and refuses all of
// them. This worker goes on trying with what it has published.
func (w *worker) stops(refusal *outbox.RefusedError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = "nothing is published, because the database records nothing: " + refusal.Err.Error()
}

// records ends stops.
func (w *worker) records() {
	w.mu.Lock()
	was := w.stopped
	w.stopped = ""
	w.mu.Unlock()
	if was != "" {
		w.succeeded()
		w.wake()
	}
}

// stoppedBy returns a worker that is trying whether the database records anything, and why it has to.
func (r *tableRelay) stoppedBy() (by *worker, why string) {
	for _, w := range r.workers {
		w.mu.Lock()
		why = w.stopped
		w.mu.Unlock()
		if why != "" {
			return w, why
		}
	}
	return nil, ""
}
