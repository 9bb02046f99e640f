package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
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

// judge decides what becomes of each record. results[i] is the answer for a delivery of records[owner[i]]; owner
// ascends. Records without an outcome are left as they are and come again with a later claim. With isolate, what the
// sink could not take waits in the table, uncounted, because the rest of the sink works and the claims are needed for
// that.
func (r *tableRelay) judge(
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
		if rec := records[owner[i]]; r.cfg.routed() {
			r.judgeRouted(&v, rec, batch[i:end], results[i:end])
		} else {
			r.judgeRecord(&v, rec, names[i:end:end], results[i:end], isolate)
		}
		i = end
	}
	for i, rec := range records {
		if f, ok := defects[i]; ok {
			v.outcomes = append(v.outcomes, outbox.Outcome{
				Record: rec, State: outbox.Dead, Attempts: rec.Attempts + 1,
				Failures: []outbox.Failure{f}, DeliveredTo: rec.DeliveredTo,
			})
		} else if _, published := slices.BinarySearch(owner, i); !published {
			// Nothing may be left of a list that somebody shortened meanwhile, or that names a destination twice, and
			// nobody may have subscribed. Without an outcome the record would be claimed for ever.
			if left, failure := r.destinations(rec); failure == nil && len(left) == 0 {
				v.outcomes = append(v.outcomes, outbox.Outcome{Record: rec, State: outbox.Delivered, DeliveredTo: rec.DeliveredTo})
				if len(rec.DeliveredTo) == 0 {
					v.unsubscribed++
				}
			}
		}
	}
	return v
}

func (r *tableRelay) judgeRecord(
	v *verdict,
	rec *outbox.Record,
	destinations []string,
	results []outbox.Result,
	isolate bool,
) {
	out := outbox.Outcome{Record: rec, State: outbox.Retry, Attempts: rec.Attempts, DeliveredTo: rec.DeliveredTo}
	var wait time.Duration
	served, unavailable, unattempted := 0, 0, 0
	exhausted := true // every destination that failed has done so for the last time
	for i, res := range results {
		if res.Err == nil {
			served++
			if res.Duplicate {
				v.duplicates++
			}
			continue
		}
		class, after := outbox.Classify(res.Err)
		switch class {
		case outbox.ClassUnavailable:
			v.unavailable = res.Err
			unavailable++
			continue
		case outbox.ClassNotAttempted, outbox.ClassPostponed:
			wait = max(wait, after)
			unattempted++
			continue
		}
		policy := r.cfg.policy(destinations[i])
		wait = max(wait, after, policy.Backoff.delay(rec.Attempts+1))
		exhausted = exhausted && (class == outbox.ClassPermanent || rec.Attempts+1 >= policy.MaxAttempts)
		f := outbox.Failure{Destination: destinations[i], Reason: outbox.ReasonOf(res.Err), Error: res.Err.Error()}
		if r.cfg.table.Layout.Part != "" { // of outbox_deliveries: a dead letter says which sink it was
			f.Error = r.cfg.table.Sink + ": " + f.Error
		}
		out.Failures = append(out.Failures, f)
	}
	if served == len(results) {
		if len(rec.DeliveredTo) > 0 {
			destinations = append(slices.Clip(rec.DeliveredTo), destinations...)
		}
		v.outcomes = append(v.outcomes, outbox.Outcome{Record: rec, State: outbox.Delivered, DeliveredTo: destinations})
		return
	}
	for i, res := range results {
		if res.Err == nil {
			out.DeliveredTo = append(slices.Clip(out.DeliveredTo), destinations[i])
		}
	}
	switch {
	case len(out.Failures) > 0:
		out.Attempts++
		out.RetryIn = wait
		// A destination that was not tried for the broker's sake keeps the record alive.
		if exhausted && unavailable+unattempted == 0 {
			out.State, out.RetryIn = outbox.Dead, 0
		}
	case isolate && unavailable > 0:
		out.RetryIn = max(wait, partRetry)
	case wait > 0: // postponed
		out.RetryIn = wait
	case served == 0:
		return // nothing happened to this record
	}
	v.outcomes = append(v.outcomes, out)
}

// settle records the outcomes, trying again for as long as the database does not answer. What was published and not
// settled would be published again, and a sink remembers ids for a limited time only. The owner and epoch guard makes a
// late settle harmless. It gives up when hardStop ends. What a database that is well refuses is kept by the worker and
// returned.
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
		select {
		case <-hardStop.Done():
			return outbox.Settled{}, nil, err
		case <-time.After(pause):
		}
		pause = min(pause*2, 2*time.Second)
	}
}
