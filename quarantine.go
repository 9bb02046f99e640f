package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/fault"
)

// An event can kill the process that publishes it: a panic in a goroutine nobody can recover, memory that runs out.
// Every relay that takes its lane over dies in turn, and no error is ever written down. So starts are counted against
// finishes: taking a lane over from a relay that vanished counts one, finishing a turn on it takes the count back to
// zero. Nothing is written while nobody dies.
//
// A lane at which two relays in a row died is suspect. It is served alone, after the others, in trials. How many
// records are about to be tried is written down first, so that the next relay knows what this one died of, and tries a
// quarter of them. The one of which two relays die while it was alone is the poison, and becomes a dead letter. Alone
// is alone in the process: while another worker publishes, it may be that one's event that kills. And one death is not
// enough: a SIGKILL from outside, or a SIGSTOP for longer than the lease, leaves the same traces.
const (
	suspectAfter = 2
	trialRecords = 64
	trialFactor  = 4
	buriedAfter  = 2 // deaths alone
)

// suspicion is what a worker knows of a suspect lane.
type suspicion struct {
	lane    Lane
	size    int       // of the next trial
	left    int       // records to try until the lane is trusted again
	culprit uuid.UUID // what a relay died of while it was alone
	deaths  int       // how many of them did
}

func (s *suspicion) single() bool { return s.size == 1 }

// quarantine is what a worker knows of its lanes. Each is judged once, when it was taken: what the database says of it
// later is of this worker's own making.
type quarantine struct {
	seen     map[int16]int64 // epochs
	suspects map[int16]*suspicion
	unproven map[int16]bool // one relay died there; no turn has been finished since
	alone    bool           // whether the next turn is for trials of single events
}

// sift divides lanes into those to be served as usual and the suspect ones.
func (q *quarantine) sift(lanes []Lane, cfg *tableConfig) (trusted []Lane, suspects []*suspicion) {
	if q.seen == nil {
		q.seen, q.suspects, q.unproven = map[int16]int64{}, map[int16]*suspicion{}, map[int16]bool{}
	}
	trusted = lanes
	for _, l := range lanes {
		if epoch, ok := q.seen[l.Number]; !ok || epoch != l.Epoch {
			q.judge(l, cfg)
		}
	}
	if len(q.suspects) == 0 {
		return trusted, nil
	}
	trusted = nil
	for _, l := range lanes {
		if s, ok := q.suspects[l.Number]; ok {
			suspects = append(suspects, s)
		} else {
			trusted = append(trusted, l)
		}
	}
	return trusted, suspects
}

func (q *quarantine) judge(l Lane, cfg *tableConfig) {
	q.seen[l.Number] = l.Epoch
	delete(q.suspects, l.Number)
	delete(q.unproven, l.Number)
	switch trial := l.Trial; {
	case trial.Event != uuid.Nil: // others may have been committed in front of it since
		q.suspects[l.Number] = &suspicion{
			lane: l, size: 1, left: trialRecords, culprit: trial.Event, deaths: trial.Size,
		}
	case trial.Size > 0:
		q.suspects[l.Number] = &suspicion{lane: l, size: max(1, trial.Size/trialFactor), left: trial.Size}
	case l.Crashes >= suspectAfter:
		q.suspects[l.Number] = &suspicion{lane: l, size: trialRecords, left: maxBatchesPerClaim * cfg.BatchRecords}
	case l.Crashes > 0:
		q.unproven[l.Number] = true
	}
	if s := q.suspects[l.Number]; s != nil {
		cfg.Logger.Warn("relays died at this lane, trying its events in small batches",
			"table", cfg.name(), "lane", l.Number, "crashes", l.Crashes, "batch", s.size)
	}
}

// proven returns the lanes that a finished turn has cleared, as they are to be marked.
func (q *quarantine) proven(lanes []Lane) (proven []Lane) {
	if len(q.unproven) == 0 {
		return nil
	}
	for _, l := range lanes {
		if q.unproven[l.Number] {
			delete(q.unproven, l.Number)
			proven = append(proven, Lane{Number: l.Number, Epoch: l.Epoch})
		}
	}
	return proven
}

// try serves a suspect lane once. Before each step at which the process may die, what it is about to do is written
// down.
func (w *worker) try(
	ctx, hardStop context.Context, pass *ticket, s *suspicion, until time.Time,
) (claimed int, err error) {
	mark := func(ctx context.Context, crashes int, trial Trial) error {
		return w.keeper.mark(ctx, Lane{Number: s.lane.Number, Epoch: s.lane.Epoch, Crashes: crashes, Trial: trial})
	}
	// That the relay has survived is written down even if it is out of time: its successor would take what it tried for
	// what it died of.
	survived := context.WithoutCancel(hardStop)
	crashes, known := s.lane.Crashes, Trial{Size: s.deaths, Event: s.culprit}
	before := known
	if s.culprit == uuid.Nil {
		before.Size = s.size
	}
	if err := mark(hardStop, crashes, before); err != nil {
		return 0, err
	}
	lanes := []Lane{s.lane}
	records, err := w.claim(ctx, lanes, ClaimLimit{Records: s.size, Bytes: w.cfg.BatchBytes})
	if err == nil && len(records) > 0 {
		fault.Hit(fault.AfterClaim)
		err = w.tryRecords(hardStop, pass, s, lanes, until, records,
			func(t Trial) error { return mark(hardStop, crashes, t) })
	}
	// An outage may have put off what is looked for. And fewer records than asked for may be as many as BatchBytes lets
	// through: only none are the end.
	putOff := pass.probe || pass.fresh
	if err == nil && (s.culprit == uuid.Nil || !putOff) {
		s.left -= len(records)
	}
	over := s.left <= 0 || len(records) == 0 && !putOff || s.single() && len(records) > 0 && records[0].ID == s.culprit
	if err != nil || !over {
		return len(records), errors.Join(err, mark(survived, crashes, known))
	}
	delete(w.quarantine.suspects, s.lane.Number)
	w.cfg.Logger.Info("lane is trusted again", "table", w.cfg.name(), "lane", s.lane.Number)
	return len(records), mark(survived, 0, Trial{})
}

func (w *worker) tryRecords(
	hardStop context.Context, pass *ticket, s *suspicion, lanes []Lane, until time.Time, records []*Record,
	mark func(Trial) error,
) error {
	if s.single() {
		trial := Trial{Size: 1, Event: records[0].ID}
		if trial.Event == s.culprit {
			trial.Size += s.deaths
		}
		if trial.Size > buriedAfter {
			w.cfg.breaker.rest(pass)
			return w.bury(hardStop, lanes, records[0])
		}
		if err := mark(trial); err != nil {
			return err
		}
	}
	if over(until) {
		return errors.New("try a suspect lane: the lease is too close to its end to publish")
	}
	held := heldKeys{}
	_, err := w.settleBatch(hardStop, pass, lanes, w.publishBatch(hardStop, pass, lanes, until, records, held), held)
	return err
}

// bury makes a dead letter of an event that a relay died of.
func (w *worker) bury(hardStop context.Context, lanes []Lane, rec *Record) error {
	what := fmt.Sprintf("the relay died while it published this event and nothing else, %d times; "+
		"%d relays in a row had died at its lane", buriedAfter, lanes[0].Crashes)
	destinations, defect := w.destinations(rec)
	if defect != nil {
		destinations = []string{""}
	}
	out := Outcome{Record: rec, State: Dead, Attempts: rec.Attempts + 1, DeliveredTo: rec.DeliveredTo}
	for _, d := range destinations {
		out.Failures = append(out.Failures, Failure{Destination: d, Reason: ReasonDeliveryFailed, Error: what})
	}
	w.cfg.Logger.Error("poison event found, it becomes a dead letter",
		"table", w.cfg.name(), "event", rec.ID, "lane", rec.Lane, "crashes", lanes[0].Crashes)
	settled, _, err := w.settle(hardStop, lanes, []Outcome{out})
	w.report(BatchReport{Table: w.cfg.name(), Claimed: 1, Settled: settled})
	return err
}
