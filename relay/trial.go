package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// try serves suspect lanes once. Before the process may die, what it is about to do is written
// down.
func (w *worker) try(ctx context.Context, t *turn, s *suspicion) (claimed int, err error) {
	before := s.known()
	if s.culprit == uuid.Nil {
		before.Size = s.size
	}
	if !s.marked {
		if err := w.markTrial(t.hardStop, s.lanes, before); err != nil {
			return 0, err
		}
	}
	s.marked = !s.single()
	records, err := w.claim(ctx, s.lanes, outbox.ClaimLimit{Records: s.size, Bytes: w.cfg.BatchBytes})
	if err == nil && len(records) > 0 {
		fault.Hit(fault.AfterClaim)
		err = w.tryRecords(t, s, records)
	}
	// An outage may have put off what is looked for. And fewer records than asked for may be as
	// many as BatchBytes lets through: only none are the end.
	putOff := t.pass.probe || t.pass.fresh
	if err == nil && (s.culprit == uuid.Nil || !putOff) {
		s.left -= len(records)
	}
	over := s.left <= 0 || len(records) == 0 && !putOff || s.single() && len(records) > 0 && records[0].ID == s.culprit
	if err == nil && !over && s.marked {
		return len(records), nil
	}
	// Written down even if the relay is out of time: its successor would blame what was tried for
	// its death.
	survived := context.WithoutCancel(t.hardStop)
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

func (w *worker) tryRecords(t *turn, s *suspicion, records []*outbox.Record) error {
	if s.single() {
		i := slices.IndexFunc(s.lanes, func(l outbox.Lane) bool { return l.Number == records[0].Lane })
		t = t.of(s.lanes[i : i+1])
		trial := outbox.Trial{Size: 1, Event: records[0].ID}
		if trial.Event == s.culprit {
			trial.Size += s.deaths
		}
		if trial.Size > buriedAfter {
			w.cfg.breaker.yield(t.pass)
			return w.bury(t, records[0])
		}
		if err := w.markTrial(t.hardStop, t.lanes, trial); err != nil {
			return err
		}
	}
	if w.lapsed(t) {
		return errors.New("try suspect lanes: the lease is too close to its end to publish")
	}
	_, err := w.settleBatch(t, w.publishBatch(t, records))
	return err
}

// bury makes a dead letter of an event that a relay died of.
func (w *worker) bury(t *turn, rec *outbox.Record) error {
	what := fmt.Sprintf("the relay died while it published this event and nothing else, %d times; "+
		"%d relays in a row had died at its lane", buriedAfter, t.lanes[0].Crashes)
	destinations, defect := w.outstanding(rec)
	if defect != nil {
		destinations = []string{""}
	}
	out := outbox.Outcome{Record: rec, State: outbox.Dead, Attempts: rec.Attempts + 1, DeliveredTo: rec.DeliveredTo}
	for _, d := range destinations {
		out.Failures = append(out.Failures, outbox.Failure{Destination: d, Reason: outbox.ReasonDeliveryFailed, Error: what})
	}
	w.cfg.Logger.Error("poison event found, it becomes a dead letter",
		"table", w.cfg.name(), "event", rec.ID, "lane", rec.Lane, "crashes", t.lanes[0].Crashes)
	settled, _, err := w.settle(t.hardStop, t.lanes, []outbox.Outcome{out})
	w.report(outbox.BatchReport{Table: w.cfg.name(), Claimed: 1, Settled: settled})
	return err
}
