package outbox

import (
	"context"
	"fmt"
	"time"
)

// verdict is what one batch came to.
type verdict struct {
	outcomes    []Outcome
	duplicates  int
	unavailable error // set if the sink, or a part of it, was down
}

// judge decides what becomes of each record. results[i] is the answer for a delivery of records[owner[i]]; owner ascends.
// Records without an outcome are left as they are and come again with a later claim.
func (r *Relay) judge(records []*Record, batch []Delivery, owner []int, results []Result, defects map[int]Failure) verdict {
	v := verdict{outcomes: make([]Outcome, 0, len(records))}
	for i := 0; i < len(batch); {
		end := i + 1
		for end < len(batch) && owner[end] == owner[i] {
			end++
		}
		r.judgeRecord(&v, records[owner[i]], batch[i:end], results[i:end])
		i = end
	}
	for i, rec := range records {
		if f, ok := defects[i]; ok {
			v.outcomes = append(v.outcomes, Outcome{Record: rec, State: Dead, Attempts: rec.Attempts + 1, Failures: []Failure{f}, DeliveredTo: rec.DeliveredTo})
		} else if len(rec.DeliveredTo) > 0 {
			// Nothing may be left of a list that somebody shortened meanwhile, or that names a destination twice. Without an outcome
			// the record would be claimed for ever.
			if left, failure := r.destinations(rec); failure == nil && len(left) == 0 {
				v.outcomes = append(v.outcomes, Outcome{Record: rec, State: Delivered})
			}
		}
	}
	return v
}

func (r *Relay) judgeRecord(v *verdict, rec *Record, deliveries []Delivery, results []Result) {
	var failures []Failure
	var wait time.Duration
	counted, final, uncounted := false, true, false
	served := 0
	for i, res := range results {
		if res.Err == nil {
			served++
			if res.Duplicate {
				v.duplicates++
			}
			continue
		}
		class, after := Classify(res.Err)
		switch class {
		case ClassUnavailable:
			v.unavailable = res.Err
			uncounted = true
			continue
		case ClassNotAttempted:
			uncounted = true
			continue
		case ClassRetryAfter:
			wait = max(wait, after)
		}
		counted = true
		final = final && class == ClassPermanent
		failures = append(failures, Failure{Destination: deliveries[i].Destination, Reason: ReasonDeliveryFailed, Error: res.Err.Error()})
	}
	if served == len(results) {
		v.outcomes = append(v.outcomes, Outcome{Record: rec, State: Delivered})
		return
	}
	if !counted && served == 0 {
		return // nothing happened to this record
	}
	out := Outcome{Record: rec, State: Retry, Attempts: rec.Attempts, Failures: failures, DeliveredTo: rec.DeliveredTo}
	for i, res := range results {
		if res.Err == nil {
			out.DeliveredTo = append(out.DeliveredTo, deliveries[i].Destination)
		}
	}
	if counted {
		out.Attempts++
		out.RetryIn = max(wait, r.cfg.Backoff.Delay(out.Attempts))
		// A destination that was not tried for the broker's sake keeps the record alive.
		if !uncounted && (final || out.Attempts >= r.cfg.MaxAttempts) {
			out.State, out.RetryIn = Dead, 0
		}
	}
	v.outcomes = append(v.outcomes, out)
}

// settle records the outcomes, trying again for as long as the database does not answer: what was published and not settled would
// be published again, and a sink remembers ids for a limited time only. The owner and epoch guard makes a late settle
// harmless. It gives up when hardStop ends.
func (w *worker) settle(hardStop context.Context, lanes []Lane, outcomes []Outcome) (Settled, error) {
	if len(outcomes) == 0 {
		return Settled{}, nil
	}
	pause := 50 * time.Millisecond
	for {
		ctx, cancel := context.WithTimeout(hardStop, w.cfg.DatabaseTimeout)
		settled, err := w.store.Settle(ctx, w.owner, lanes, outcomes)
		cancel()
		if err == nil {
			return settled, nil
		}
		err = fmt.Errorf("settle %d outcomes: %w", len(outcomes), err)
		if hardStop.Err() != nil {
			return Settled{}, err
		}
		w.failed(err)
		select {
		case <-hardStop.Done():
			return Settled{}, err
		case <-time.After(pause):
		}
		pause = min(pause*2, 2*time.Second)
	}
}
