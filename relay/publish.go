package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// route turns claimed records into deliveries, but for those whose key is held. Records that cannot be routed get their
// failure in defects, and their keys are held.
func (r *tableRelay) route(
	records []*outbox.Record,
	held outbox.HeldKeys,
) (batch []outbox.Delivery, owner []int, defects map[int]outbox.Failure) {
	batch = make([]outbox.Delivery, 0, len(records))
	owner = make([]int, 0, len(records)) // owner[i] is the index in records of batch[i]
	origin := r.keeper.origin.Load()
	for i, rec := range records {
		if held.Holds(rec) {
			continue // behind a record of this claim that was not delivered; a later claim brings it
		}
		destinations, failure := r.destinations(rec)
		if failure == nil {
			failure = r.reserved(destinations)
		}
		if failure != nil {
			if defects == nil {
				defects = map[int]outbox.Failure{}
			}
			defects[i] = *failure
			held.Hold(rec)
			continue
		}
		for _, d := range destinations {
			one := outbox.Delivery{Record: rec, Destination: d, Envelope: r.cfg.table.Envelope, Origin: origin}
			if r.cfg.routed() && !r.cfg.alone() {
				one.Sink, one.Destination, _ = strings.Cut(d, ":")
			}
			batch = append(batch, one)
			owner = append(owner, i)
		}
	}
	return batch, owner, defects
}

// nameOf is what an outcome calls the delivery's destination.
func nameOf(d *outbox.Delivery) string {
	if d.Sink == "" {
		return d.Destination
	}
	return address{d.Sink, d.Destination}.String()
}

// destinations returns where rec still has to go: the names of destinations or, where routes say so, of addresses.
func (r *tableRelay) destinations(rec *outbox.Record) (left []string, failure *outbox.Failure) {
	if rec.Defect != "" {
		return nil, &outbox.Failure{Reason: outbox.ReasonDeserializationFailed, Error: rec.Defect}
	}
	var err error
	if r.cfg.routed() && !r.cfg.alone() {
		left, err = routes(r.cfg.table.Routes).outstanding(rec)
	} else {
		if left, err = rec.Outstanding(r.cfg.table.Destination); err == nil {
			left = rec.Undelivered(r.expand(rec, left))
		}
	}
	if err != nil {
		return nil, &outbox.Failure{Reason: outbox.ReasonHandlerMissing, Error: err.Error()}
	}
	return left, nil
}

// reserved refuses destinations that are not this table's to use.
func (r *tableRelay) reserved(destinations []string) *outbox.Failure {
	if r.cfg.table.Reserved == nil {
		return nil
	}
	for _, d := range destinations {
		if r.cfg.routed() && !r.cfg.alone() {
			_, d, _ = strings.Cut(d, ":") // at whichever sink
		}
		if r.cfg.table.Reserved(d) {
			problem := fmt.Sprintf("destination %q is reserved for the events of another table", d)
			return &outbox.Failure{Destination: d, Reason: outbox.ReasonHandlerMissing, Error: problem}
		}
	}
	return nil
}

// publisher publishes to one sink.
type publisher struct{ sink outbox.Sink }

// publish hands the batch to the sink. If the sink panics, the batch is published in halves until the delivery that
// does it is alone: it fails, the others do not pay for it. What had gone out before the panic goes out again, and a
// sink that refuses copies refuses it.
func (p publisher) publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	if len(batch) == 0 {
		return nil
	}
	results, panicked := p.publishOnce(ctx, batch)
	if panicked == nil {
		return results
	}
	if len(batch) == 1 {
		return failAll(batch, panicked)
	}
	return halves(batch, func(part []outbox.Delivery) []outbox.Result { return p.publish(ctx, part) })
}

// halves publishes a batch in two calls. What is behind an event of its key that failed in the first is not attempted
// in the second.
func halves(batch []outbox.Delivery, publish func([]outbox.Delivery) []outbox.Result) []outbox.Result {
	results := slices.Clip(publish(batch[:len(batch)/2]))
	failed := outbox.HeldKeys{}
	for i, d := range batch[:len(results)] {
		if results[i].Err != nil {
			failed.Hold(d.Record)
		}
	}
	var rest []outbox.Delivery
	var at []int // index in batch of each of rest
	for i, d := range batch[len(results):] {
		if failed.Behind(d.Record) {
			continue
		}
		rest, at = append(rest, d), append(at, len(results)+i)
	}
	results = append(results, failAll(batch[len(results):], outbox.ErrNotAttempted)...)
	if len(rest) == 0 {
		return results
	}
	for i, result := range publish(rest) {
		results[at[i]] = result
	}
	return results
}

// publishOnce makes one call. A sink that answers the wrong number of results has an unknown outcome.
func (p publisher) publishOnce(ctx context.Context, batch []outbox.Delivery) (results []outbox.Result, panicked error) {
	defer func() {
		if cause := recover(); cause != nil {
			panicked = fmt.Errorf("publish: sink panicked: %v", cause)
		}
	}()
	if fault.Enabled {
		for i := range batch {
			fault.Publishing(batch[i].ID.String())
		}
	}
	results = p.sink.Publish(ctx, batch)
	if len(results) != len(batch) {
		err := fmt.Errorf("publish: sink answered %d of %d deliveries", len(results), len(batch))
		return failAll(batch, outbox.Unavailable(err)), nil
	}
	return results, nil
}

func failAll(batch []outbox.Delivery, err error) []outbox.Result {
	results := make([]outbox.Result, len(batch))
	for i := range results {
		results[i].Err = err
	}
	return results
}
