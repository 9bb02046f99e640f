package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/fault"
)

// verdict is what one batch came to.
type verdict struct {
	outcomes   []outbox.Outcome
	duplicates int
	owed       int // deliveries
	// Records that go to nobody, because nobody has subscribed.
	unsubscribed int
	unavailable  error // set if the sink, or a part of it, was down
}

// verdict decides what becomes of each record. results[i] is the answer for a delivery of
// records[owner[i]]; owner ascends. Records without an outcome are left as they are and come again
// with a later claim. With isolate, what the sink could not take waits in the table, uncounted,
// because the rest of the sink works and the claims are needed for that.
func (r *tableRelay) verdict(
	records []*outbox.Record,
	batch []outbox.Delivery,
	owner []int,
	results []outbox.Result,
	defects map[int]outbox.Failure,
	isolate bool,
) verdict {
	v := verdict{outcomes: make([]outbox.Outcome, 0, len(records))}
	names := make([]string, len(batch)) // of all destinations, so that an outcome's own need no memory
	for i := range batch {
		names[i] = batch[i].Destination
	}
	for i := 0; i < len(batch); {
		end := i + 1
		for end < len(batch) && owner[end] == owner[i] {
			end++
		}
		r.judge(r, &v, judged{records[owner[i]], batch[i:end], names[i:end:end], results[i:end], isolate})
		i = end
	}
	for i, rec := range records {
		if f, ok := defects[i]; ok {
			v.outcomes = append(v.outcomes, outbox.Outcome{
				Record: rec, State: outbox.Dead, Attempts: rec.Attempts + 1,
				Failures: []outbox.Failure{f}, DeliveredTo: rec.DeliveredTo,
			})
		} else if _, published := slices.BinarySearch(owner, i); !published {
			// Nothing may be left of a list that somebody shortened meanwhile, or that names a
			// destination twice, and nobody may have subscribed. Without an outcome the record
			// would be claimed for ever.
			if left, failure := r.outstanding(rec); failure == nil && len(left) == 0 {
				v.outcomes = append(v.outcomes, outbox.Outcome{Record: rec, State: outbox.Delivered, DeliveredTo: rec.DeliveredTo})
				if len(rec.DeliveredTo) == 0 {
					v.unsubscribed++
				}
			}
		}
	}
	return v
}

// judged is a record with the answers for its deliveries, whose destinations are called names in an
// outcome.
type judged struct {
	*outbox.Record
	deliveries []outbox.Delivery
	names      []string
	results    []outbox.Result
	isolate    bool
}

// judge implements mode.
func (direct) judge(r *tableRelay, v *verdict, one judged) {
	out := outbox.Outcome{Record: one.Record, State: outbox.Retry, Attempts: one.Attempts, DeliveredTo: one.DeliveredTo}
	unavailable, untried := 0, 0
	exhausted := true // every destination that failed has done so for the last time
	var wait time.Duration
	for i, res := range one.results {
		class, after := outbox.Classify(res.Err)
		switch {
		case res.Err == nil:
			if res.Duplicate {
				v.duplicates++
			}
		case class == outbox.ClassUnavailable:
			v.unavailable = res.Err
			unavailable++
		case class == outbox.ClassNotAttempted, class == outbox.ClassPostponed:
			wait = max(wait, after)
			untried++
		default:
			policy := r.cfg.table.policy(one.names[i])
			wait = max(wait, after, policy.Backoff.delay(one.Attempts+1))
			exhausted = exhausted && (class == outbox.ClassPermanent || one.Attempts+1 >= policy.MaxAttempts)
			out.Failures = append(out.Failures, r.failureOf(one.names[i], res.Err))
		}
	}
	served := len(one.results) - unavailable - untried - len(out.Failures)
	if served == len(one.results) {
		to := one.names
		if len(one.DeliveredTo) > 0 {
			to = append(slices.Clip(one.DeliveredTo), one.names...)
		}
		v.outcomes = append(v.outcomes, outbox.Outcome{Record: one.Record, State: outbox.Delivered, DeliveredTo: to})
		return
	}
	for i, res := range one.results {
		if res.Err == nil {
			out.DeliveredTo = append(slices.Clip(out.DeliveredTo), one.names[i])
		}
	}
	switch {
	case len(out.Failures) > 0:
		out.Attempts++
		out.RetryIn = wait
		// A destination that was not tried for the broker's sake keeps the record alive.
		if exhausted && unavailable+untried == 0 {
			out.State, out.RetryIn = outbox.Dead, 0
		}
	case one.isolate && unavailable > 0:
		out.RetryIn = max(wait, partRetry)
	case wait > 0: // postponed
		out.RetryIn = wait
	case served == 0:
		return // nothing happened to this record
	}
	v.outcomes = append(v.outcomes, out)
}

// failureOf is one destination's. That of outbox_deliveries says which sink it was.
func (r *tableRelay) failureOf(destination string, err error) outbox.Failure {
	f := outbox.Failure{Destination: destination, Reason: outbox.ReasonOf(err), Error: err.Error()}
	if r.cfg.table.Layout.Part != "" {
		f.Error = r.cfg.table.Sink + ": " + f.Error
	}
	return f
}

// settle records the outcomes, trying again for as long as the database does not answer. What was
// published and not settled would be published again, and a sink remembers ids for a limited time
// only. The owner and epoch guard makes a late settle harmless. It gives up when hardStop ends.
// What a database that is well refuses is kept by the worker and returned.
func (w *worker) settle(
	hardStop context.Context,
	lanes []outbox.Lane,
	outcomes []outbox.Outcome,
) (outbox.Settled, []outbox.Outcome, error) {
	if len(outcomes) == 0 {
		return outbox.Settled{}, nil, nil
	}
	pause := 50 * time.Millisecond
	for {
		ctx, cancel := context.WithTimeout(hardStop, w.cfg.DatabaseTimeout)
		settled, err := w.store.Settle(ctx, w.owner, lanes, outcomes)
		cancel()
		var refusal *outbox.RefusedError
		switch {
		case err == nil:
			w.records()
			return settled, nil, nil
		case errors.As(err, &refusal) && !refusal.Whole:
			w.records()
			w.refused(refusal, lanes)
			return settled, refusal.Outcomes, nil
		case refusal != nil:
			w.stops(refusal)
		}
		err = fmt.Errorf("settle %d outcomes: %w", len(outcomes), err)
		if hardStop.Err() != nil {
			return outbox.Settled{}, nil, err
		}
		w.failed(err)
		if !backoff.Wait(hardStop, pause) {
			return outbox.Settled{}, nil, err
		}
		pause = min(pause*2, 2*time.Second)
	}
}

// settleBatch records what became of a batch. lost says that a lane has gone to another relay.
func (w *worker) settleBatch(t *turn, b published) (lost bool, err error) {
	began := time.Now()
	fault.Hit(fault.BeforeSettle)
	if len(b.outcomes) > 0 {
		w.cfg.breaker.yield(t.pass)
	}
	settled, refused, err := w.settle(t.hardStop, t.lanes, b.outcomes)
	b.report.Settled, b.report.Settle = settled, time.Since(began)
	for _, o := range refused {
		t.held.Hold(o.Record)
	}
	if err == nil && len(b.outcomes) > 0 {
		w.inflight.noteSettle(len(b.outcomes) == len(refused))
	}
	if b.owed > 0 {
		w.settled(b.outcomes)
	}
	if settled.Retried+settled.Dead > 0 {
		w.logFailures(b.outcomes, refused)
	}
	w.report(b.report)
	switch {
	case err != nil:
		return false, err
	case b.down:
		return false, fmt.Errorf("publish: %w", b.unavailable)
	case w.inflight.wholly > 0:
		return false, fmt.Errorf("settle: the database records none of %d outcomes, so only a few events are claimed at a "+
			"time: look for what refuses them: %w", len(refused), w.inflight.why)
	case len(b.outcomes) > len(refused) && settled.Delivered+settled.Retried+settled.Dead == 0:
		// The next claim brings the same records: without a pause they would be published again as
		// fast as the loop turns.
		return false, fmt.Errorf("settle: none of %d records changed: their lanes went to another relay, "+
			"something else settled them, or this role may not update them", b.claimed)
	}
	return settled.Lost > 0, nil
}

// refused keeps what the database did not take of a settle, and tells about it once a minute.
func (w *worker) refused(refusal *outbox.RefusedError, lanes []outbox.Lane) {
	now := time.Now()
	w.inflight.why = refusal.Err
	w.inflight.refused(refusal.Outcomes, lanes, now)
	if len(refusal.Outcomes) == 0 || now.Sub(w.inflight.logged) < time.Minute && !w.inflight.logged.IsZero() {
		return
	}
	w.inflight.logged = now
	rec := refusal.Outcomes[0].Record
	w.cfg.Logger.Warn("the database does not record what became of some events; they and their keys wait, "+
		"the others go on",
		"table", w.cfg.name(), "worker", w.number, "waiting", w.inflight.unsettled(), "event", rec.ID,
		"key", rec.AggregateID, "error", refusal.Err)
}

// settleAgain tries what the database refused before and is due. Nothing is published for it.
func (w *worker) settleAgain(ctx context.Context, lanes []outbox.Lane) error {
	if by, _ := w.stoppedBy(); by != w && w.inflight.unsettled() == 0 {
		return nil
	}
	again := w.inflight.due(lanes, time.Now())
	if by, why := w.stoppedBy(); by == w && len(again) == 0 {
		if w.inflight.unsettled() > 0 {
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
			w.inflight.refused(again, lanes, time.Now())
			if refusal != nil {
				w.stops(refusal)
			}
			return err
		}
		w.records()
		if settled != (outbox.Settled{}) {
			w.inflight.wholly = 0
		}
		w.report(outbox.BatchReport{Table: w.cfg.name(), Settled: settled})
	}
	if w.inflight.unsettled() >= unsettledBatches*w.cfg.BatchRecords {
		return errors.New("settle: too many outcomes that the database does not record, so nothing is claimed; " +
			"the log has why")
	}
	return nil
}

// stops has the table's workers publish nothing until settles are taken again: the database is well
// and refuses all of them. This worker goes on trying with what it has published.
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

// stoppedBy returns a worker that is trying whether the database records anything, and why it has
// to.
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

// settleLate records what became of what was under way. The outcomes are those of a batch, but for
// the breaker, which has had its word.
func (w *worker) settleLate(hardStop context.Context) {
	lingering := w.inflight.lingering()
	if len(lingering) == 0 {
		return
	}
	held := w.keeper.still(lingering)
	records, batch, owner, results := w.inflight.answered(held)
	if len(records) > 0 {
		w.inflight.taken.published(batch, results)
		w.late(w, batch, results)
		v := w.verdict(records, batch, owner, results, nil, true)
		began := time.Now()
		settled, refused, err := w.settle(hardStop, held, v.outcomes)
		if v.owed > 0 {
			w.settled(v.outcomes)
		}
		if settled.Retried+settled.Dead > 0 {
			w.logFailures(v.outcomes, refused)
		}
		all, slowest := latencies(v.outcomes, began)
		w.report(outbox.BatchReport{Table: w.cfg.name(), Settled: settled, Duplicates: v.duplicates, Owed: v.owed,
			Latencies: all, Slowest: slowest, Settle: time.Since(began)})
		if err != nil {
			w.failed(err)
		}
	}
	w.keeper.linger(w.number, w.inflight.lingering(), w.inflight.oldest())
}

// finishLate waits for what is under way when the worker has to stop, as long as it may.
func (w *worker) finishLate(hardStop context.Context) {
	for w.settleLate(hardStop); len(w.inflight.lingering()) > 0 && hardStop.Err() == nil && !w.keeper.drained(); {
		w.sleep(hardStop, w.cfg.PollMin, false)
		w.settleLate(hardStop)
	}
	w.inflight.giveUp()
}

// logFailures tells of every new cause of failures, and of every dead letter. Outcomes that the
// store refused are left out: they will be tried again, and told of then.
func (r *tableRelay) logFailures(outcomes, refused []outbox.Outcome) {
	now := time.Now()
	for i := range outcomes {
		o := &outcomes[i]
		if o.State == outbox.Delivered || len(o.Failures) == 0 {
			continue
		}
		if slices.ContainsFunc(refused, func(r outbox.Outcome) bool { return r.Record == o.Record }) {
			continue
		}
		for _, f := range o.Failures {
			attrs := []any{"table", r.cfg.name(), "destination", f.Destination, "event", o.Record.ID,
				"key", o.Record.AggregateID, "topic", o.Record.Topic, "attempts", o.Attempts, "error", f.Error}
			if o.State == outbox.Dead {
				r.cfg.Logger.Warn("dead letter", append(attrs, "reason", f.Reason)...)
			} else if n := r.causes.failure(cause{f.Destination, f.Error}, now); n > 0 {
				attrs = append(attrs, "retry_in", o.RetryIn.Round(time.Millisecond).String(), "count", n)
				r.cfg.Logger.Warn("delivery failed", attrs...)
			}
		}
	}
}
