package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// An event can kill the process that publishes it: a panic in a goroutine nobody can recover, memory that runs out.
// Every relay that takes its lane over dies in turn, and no error is ever written down. So starts are counted against
// finishes: taking a lane over from a relay that vanished counts one, finishing a turn on it takes the count back to
// zero. Nothing is written while nobody dies.
//
// A lane at which two relays in a row died is suspect. Suspect lanes are served together, after the others, in trials
// of at most a batch. How many records are about to be tried is written down first, so that the next relay knows what
// this one died of, and tries an eighth of them. Trials that go well cost no more than a turn, so after a crash loop
// without a poison a backlog drains nearly as fast as ever. The event of which three relays die while it was alone is
// the poison, and becomes a dead letter. Alone is alone in the process: while another worker publishes, it may be that
// one's event that kills. And two deaths are not enough: a SIGKILL from outside and a SIGSTOP for longer than the
// lease leave the same traces. (docs/adr/0011)
const (
	suspectAfter = 2
	trialFactor  = 8
	buriedAfter  = 3  // deaths alone
	inFront      = 64 // records that may have been committed in front of the one that was tried alone
)

// suspicion is what a worker knows of suspect lanes that are tried together, or of the one lane of an event that was
// tried alone.
type suspicion struct {
	lanes   []outbox.Lane // those that are held
	size    int           // records of the next trial
	left    int           // records to try until the lanes are trusted again
	marked  bool          // the database knows the size: it is written once, and not before each trial
	culprit uuid.UUID     // what a relay died of while it was alone
	deaths  int           // how many of them did
}

func (s *suspicion) single() bool { return s.size == 1 }

// known is what may be known of the lanes while nothing is tried.
func (s *suspicion) known() outbox.Trial { return outbox.Trial{Size: s.deaths, Event: s.culprit} }

// quarantine is what a worker knows of its lanes. Each is judged once, when it was taken: what the database says of it
// later is of this worker's own making.
type quarantine struct {
	seen     map[int16]int64 // epochs
	suspects map[int16]*suspicion
	unproven map[int16]bool // one relay died there; no turn has been finished since
	alone    bool           // whether the next turn is for trials of single events
}

// sift divides lanes into those to be served as usual and the suspect ones.
func (q *quarantine) sift(lanes []outbox.Lane, cfg *tableConfig) (trusted []outbox.Lane, suspects []*suspicion) {
	if q.seen == nil {
		q.seen, q.suspects, q.unproven = map[int16]int64{}, map[int16]*suspicion{}, map[int16]bool{}
	}
	for _, l := range lanes {
		if epoch, ok := q.seen[l.Number]; !ok || epoch != l.Epoch {
			q.judge(l, cfg)
		}
	}
	if len(q.suspects) == 0 {
		return lanes, nil
	}
	for _, s := range q.suspects {
		s.lanes = nil
	}
	for _, l := range lanes {
		s := q.suspects[l.Number]
		if s == nil {
			trusted = append(trusted, l)
			continue
		}
		if s.lanes == nil {
			suspects = append(suspects, s)
		}
		s.lanes = append(s.lanes, l)
	}
	return trusted, suspects
}

func (q *quarantine) judge(l outbox.Lane, cfg *tableConfig) {
	q.seen[l.Number] = l.Epoch
	delete(q.suspects, l.Number)
	delete(q.unproven, l.Number)
	var s suspicion
	switch trial := l.Trial; {
	case trial.Event != uuid.Nil:
		s = suspicion{size: 1, left: inFront, culprit: trial.Event, deaths: trial.Size}
	case trial.Size > 0: // by each worker of the relay that died, of what is tried together now
		s = suspicion{size: max(1, trial.Size/trialFactor), left: trial.Size * cfg.Workers}
	case l.Crashes >= suspectAfter: // the claim of a relay that died is not known
		s = suspicion{size: cfg.BatchRecords, left: maxBatchesPerClaim * cfg.BatchRecords * outbox.Lanes}
	default:
		if l.Crashes > 0 {
			q.unproven[l.Number] = true
		}
		return
	}
	for _, other := range q.suspects {
		if s.culprit == uuid.Nil && other.culprit == uuid.Nil && other.size == s.size {
			other.left, other.marked = max(other.left, s.left), false
			q.suspects[l.Number] = other
			return
		}
	}
	q.suspects[l.Number] = &s
	cfg.Logger.Warn("relays died at this lane, trying its events and those of others like it in small batches",
		"table", cfg.name(), "lane", l.Number, "crashes", l.Crashes, "batch", s.size)
}

// proven returns the lanes that a finished turn has cleared, as they are to be marked.
func (q *quarantine) proven(lanes []outbox.Lane) (proven []outbox.Lane) {
	if len(q.unproven) == 0 {
		return nil
	}
	for _, l := range lanes {
		if q.unproven[l.Number] {
			delete(q.unproven, l.Number)
			proven = append(proven, outbox.Lane{Number: l.Number, Epoch: l.Epoch})
		}
	}
	return proven
}

// try serves suspect lanes once. Before the process may die, what it is about to do is written down.
func (w *worker) try(
	ctx, hardStop context.Context, pass *ticket, s *suspicion, until time.Time,
) (claimed int, err error) {
	before := s.known()
	if s.culprit == uuid.Nil {
		before.Size = s.size
	}
	if !s.marked {
		if err := w.markTrial(hardStop, s.lanes, before); err != nil {
			return 0, err
		}
	}
	s.marked = !s.single()
	records, err := w.claim(ctx, s.lanes, outbox.ClaimLimit{Records: s.size, Bytes: w.cfg.BatchBytes})
	if err == nil && len(records) > 0 {
		fault.Hit(fault.AfterClaim)
		err = w.tryRecords(hardStop, pass, s, until, records)
	}
	// An outage may have put off what is looked for. And fewer records than asked for may be as many as BatchBytes lets
	// through: only none are the end.
	putOff := pass.probe || pass.fresh
	if err == nil && (s.culprit == uuid.Nil || !putOff) {
		s.left -= len(records)
	}
	over := s.left <= 0 || len(records) == 0 && !putOff || s.single() && len(records) > 0 && records[0].ID == s.culprit
	if err == nil && !over && s.marked {
		return len(records), nil
	}
	// Written down even if the relay is out of time: its successor would blame what was tried for its death.
	survived := context.WithoutCancel(hardStop)
	if err != nil || !over {
		s.marked = false
		return len(records), errors.Join(err, w.markTrial(survived, s.lanes, s.known()))
	}
	for i := range s.lanes {
		delete(w.quarantine.suspects, s.lanes[i].Number)
		s.lanes[i].Crashes = 0
	}
	w.cfg.Logger.Info("lanes are trusted again", "table", w.cfg.name(), "lanes", len(s.lanes))
	return len(records), w.markTrial(survived, s.lanes, outbox.Trial{})
}

// markTrial writes down what is tried at the lanes.
func (w *worker) markTrial(ctx context.Context, lanes []outbox.Lane, trial outbox.Trial) error {
	lanes = slices.Clone(lanes)
	for i := range lanes {
		lanes[i].Trial = trial
	}
	return w.keeper.mark(ctx, lanes...)
}

func (w *worker) tryRecords(
	hardStop context.Context, pass *ticket, s *suspicion, until time.Time, records []*outbox.Record,
) error {
	lanes := s.lanes
	if s.single() {
		i := slices.IndexFunc(lanes, func(l outbox.Lane) bool { return l.Number == records[0].Lane })
		lanes = lanes[i : i+1]
		trial := outbox.Trial{Size: 1, Event: records[0].ID}
		if trial.Event == s.culprit {
			trial.Size += s.deaths
		}
		if trial.Size > buriedAfter {
			w.cfg.breaker.rest(pass)
			return w.bury(hardStop, lanes, records[0])
		}
		if err := w.markTrial(hardStop, lanes, trial); err != nil {
			return err
		}
	}
	if over(until) {
		return errors.New("try suspect lanes: the lease is too close to its end to publish")
	}
	held := outbox.HeldKeys{}
	_, err := w.settleBatch(hardStop, pass, lanes, w.publishBatch(hardStop, pass, lanes, until, records, held), held)
	return err
}

// bury makes a dead letter of an event that a relay died of.
func (w *worker) bury(hardStop context.Context, lanes []outbox.Lane, rec *outbox.Record) error {
	what := fmt.Sprintf("the relay died while it published this event and nothing else, %d times; "+
		"%d relays in a row had died at its lane", buriedAfter, lanes[0].Crashes)
	destinations, defect := w.destinations(rec)
	if defect != nil {
		destinations = []string{""}
	}
	out := outbox.Outcome{Record: rec, State: outbox.Dead, Attempts: rec.Attempts + 1, DeliveredTo: rec.DeliveredTo}
	for _, d := range destinations {
		out.Failures = append(out.Failures, outbox.Failure{Destination: d, Reason: outbox.ReasonDeliveryFailed, Error: what})
	}
	w.cfg.Logger.Error("poison event found, it becomes a dead letter",
		"table", w.cfg.name(), "event", rec.ID, "lane", rec.Lane, "crashes", lanes[0].Crashes)
	settled, _, err := w.settle(hardStop, lanes, []outbox.Outcome{out})
	w.report(outbox.BatchReport{Table: w.cfg.name(), Claimed: 1, Settled: settled})
	return err
}
