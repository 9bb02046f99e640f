package relay

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

// The events of a table with routes go to several sinks, and none of those may delay another. So
// each sink is given its part of a batch at the same time and RouteTimeout to answer. What it has
// not taken by then it owes. The settle that marks the events as delivered copies that into
// outbox_deliveries. From there a relay of that sink's own delivers it, at its pace and with its
// retries. As long as a lane owes a sink anything, what comes later in the lane goes the same way,
// so that the keys stay in order at each sink. One that takes everything costs no second write.
//
// Nobody else writes a lane's rows into outbox_deliveries, so its owner knows what it owes and no
// claim looks for it. A lane that is new to a worker is asked about once. (docs/adr/0031)

// fanout is the mode of a table with routes.
type fanout struct {
	ledger  outbox.DeliveryStore
	outlets map[string]*outlet
}

func (f *fanout) owesPaused() bool { return true }

func (f *fanout) address(destination string) (sink, name string) {
	sink, name, _ = strings.Cut(destination, ":")
	return sink, name
}

func (f *fanout) destinations(r *tableRelay, rec *outbox.Record) ([]string, error) {
	return routes(r.cfg.table.Routes).outstanding(rec)
}

// outlet is a sink of a table with routes.
type outlet struct {
	*sinkState
	owed *tableRelay // serves what it owes

}

// publish publishes a batch to the sinks of its deliveries, side by side. Each result is either
// delivered or owed.
func (f *fanout) publish(
	ctx context.Context, w *worker, _ *turn, batch []outbox.Delivery,
) (results []outbox.Result, isolate, down bool) {
	results = make([]outbox.Result, len(batch))
	parts := map[string][]int{} // by sink: indexes in batch
	for i := range batch {
		parts[batch[i].Sink] = append(parts[batch[i].Sink], i)
	}
	var publishing sync.WaitGroup
	for name, part := range parts {
		o := f.outlets[name]
		if direct := f.direct(w, name, batch, part, results); len(direct) > 0 {
			publishing.Go(func() { o.publish(ctx, w.cfg.RouteTimeout, batch, direct, results, w.owes.sink(name)) })
		}
	}
	publishing.Wait()
	for i := range results {
		if results[i].Err != nil {
			w.owes.note(batch[i].Lane, batch[i].Sink)
		}
	}
	return results, false, false
}

// direct returns those of a sink's part of a batch, as indexes, that go to it directly. The others
// are answered: they go by outbox_deliveries.
func (f *fanout) direct(
	w *worker, sink string, batch []outbox.Delivery, part []int, results []outbox.Result,
) (direct []int) {
	paused, own := w.keeper.paused(), f.outlets[sink].owed.keeper.paused()
	for _, i := range part {
		d := &batch[i]
		to := []string{d.Destination}
		if w.owes.any(d.Lane, sink) || own.Holds(d.Topic, to) || paused.Holds(d.Topic, to) {
			results[i].Err = unasked
		} else {
			direct = append(direct, i)
		}
	}
	return direct
}

// chosen returns the deliveries at the given indexes, which ascend.
func chosen(batch []outbox.Delivery, at []int) []outbox.Delivery {
	if len(at) == len(batch) {
		return batch
	}
	part := make([]outbox.Delivery, len(at))
	for k, i := range at {
		part[k] = batch[i]
	}
	return part
}

// publish publishes the deliveries at the given indexes, and no others, and answers them. owes: the
// sink owes events of a lane of this worker already.
func (o *outlet) publish(
	ctx context.Context, timeout time.Duration, batch []outbox.Delivery, at []int, results []outbox.Result, owes bool,
) {
	for _, i := range at {
		results[i].Err = unasked
	}
	if slowness(o.sink) > timeout { // what it has not answered by then would be sent again
		return
	}
	pass := o.breaker.enter(false)
	if pass.wait > 0 {
		return
	}
	defer o.breaker.leave(pass)
	switch {
	case pass.probe && owes: // its own relay finds out whether it is back, and nobody waits for that
		return
	case pass.probe:
		at = at[:min(len(at), pass.limit)]
	case pass.slow:
		return
	}
	part := chosen(batch, at)
	limited, cancel := context.WithTimeout(ctx, answerTime(o.sink, timeout))
	began := time.Now()
	answers := publisher{o.sink}.publish(limited, part)
	late := limited.Err() != nil
	cancel()
	if late {
		o.breaker.late()
	}
	o.breaker.report(pass, time.Since(began), answers)
	for k, i := range at {
		if results[i] = answers[k]; answers[k].Err != nil {
			results[i].Err = &owing{answers[k].Err}
		}
	}
}

// judge implements mode: the record is delivered, but for what its sinks owe. One that the only
// sink of a journal was not there for comes again with a later claim.
func (f *fanout) judge(r *tableRelay, v *verdict, one judged) {
	for _, res := range one.results {
		if class, _ := outbox.Classify(res.Err); class == outbox.ClassUnavailable {
			v.unavailable = res.Err // owed or not: why the sink is down
		}
		if res.Err != nil && !isOwed(res.Err) {
			return
		}
	}
	out := outbox.Outcome{Record: one.Record, State: outbox.Delivered, DeliveredTo: slices.Clip(one.DeliveredTo)}
	for i, res := range one.results {
		if res.Err != nil {
			out.Owed = append(out.Owed, f.owed(r, &one.deliveries[i], res.Err))
			continue
		}
		if res.Duplicate {
			v.duplicates++
		}
		out.DeliveredTo = append(out.DeliveredTo, nameOf(&one.deliveries[i]))
	}
	v.owed += len(out.Owed)
	v.outcomes = append(v.outcomes, out)
}

// owed is what a sink owes that has answered a delivery with err, an owing.
func (f *fanout) owed(r *tableRelay, d *outbox.Delivery, err error) outbox.Owed {
	one := outbox.Owed{Sink: cmp.Or(d.Sink, r.cfg.table.Sink), Destination: d.Destination}
	class, after := outbox.Classify(err)
	if errors.Is(err, unasked) || class == outbox.ClassNotAttempted {
		return one
	}
	if one.Error = err.Error(); class == outbox.ClassUnavailable || class == outbox.ClassPostponed {
		one.RetryIn = after
		return one
	}
	one.Attempts = 1
	if class != outbox.ClassPermanent { // which its own relay makes a dead letter of
		one.RetryIn = max(after, f.outlets[one.Sink].owed.cfg.table.policy(d.Destination).Backoff.delay(1))
	}
	return one
}

// askEvery is how often a worker asks whether its lanes still owe what they owed.
const askEvery = 20 * time.Millisecond

// owes is what a worker knows of what its lanes owe.
type owes struct {
	epochs map[int16]int64    // of the lanes that were asked about
	sinks  map[int16][]string // by lane
	asked  time.Time
}

// any tells whether a lane owes a sink something.
func (o *owes) any(lane int16, sink string) bool {
	return len(o.sinks) > 0 && slices.Contains(o.sinks[lane], sink)
}

// sink tells whether any lane does.
func (o *owes) sink(name string) bool {
	for lane := range o.sinks {
		if o.any(lane, name) {
			return true
		}
	}
	return false
}

func (o *owes) note(lane int16, sink string) {
	if o.any(lane, sink) {
		return
	}
	if o.sinks == nil {
		o.sinks = map[int16][]string{}
	}
	o.sinks[lane] = append(o.sinks[lane], sink)
}

// unsure returns the lanes to ask about: those that are new to the worker, and now and then those
// that owed something.
func (o *owes) unsure(lanes []outbox.Lane, now time.Time) (unsure []int16) {
	again := now.Sub(o.asked) >= askEvery
	for _, l := range lanes {
		epoch, known := o.epochs[l.Number]
		if !known || epoch != l.Epoch || again && len(o.sinks[l.Number]) > 0 {
			unsure = append(unsure, l.Number)
		}
	}
	return unsure
}

// answered takes over what the lanes that were asked about owe.
func (o *owes) answered(asked []int16, lanes []outbox.Lane, owed map[int16][]string, now time.Time) {
	o.asked = now
	if o.epochs == nil {
		o.epochs = map[int16]int64{}
	}
	for _, l := range lanes {
		if slices.Contains(asked, l.Number) {
			o.epochs[l.Number] = l.Epoch
			delete(o.sinks, l.Number)
		}
	}
	for lane, sinks := range owed {
		for _, sink := range sinks {
			o.note(lane, sink)
		}
	}
}

// ready tells whether the relays of the sinks have asked the database for the first time: until
// then nobody knows what is paused.
func (f *fanout) ready() bool {
	for _, o := range f.outlets {
		if !o.owed.keeper.renewedAfter(time.Time{}) {
			return false
		}
	}
	return true
}

// prepare finds out what the lanes owe, where the worker does not know it.
func (f *fanout) prepare(ctx context.Context, w *worker, lanes []outbox.Lane) error {
	now := time.Now()
	unsure := w.owes.unsure(lanes, now)
	if len(unsure) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, w.cfg.DatabaseTimeout)
	defer cancel()
	owed, err := f.ledger.Owes(limited, unsure, w.cfg.table.sinks())
	if err != nil {
		return err
	}
	w.owes.answered(unsure, lanes, owed, now)
	return nil
}

// late implements mode: no sink of a fanout is waited for.
func (f *fanout) late(*worker, []outbox.Delivery, []outbox.Result) {}

// settled tells the relays of the sinks that something is there for them.
func (f *fanout) settled(outcomes []outbox.Outcome) {
	for i := range outcomes {
		for _, o := range outcomes[i].Owed {
			workers := f.outlets[o.Sink].owed.workers
			signal(workers[workerOf(outcomes[i].Record.Lane, len(workers))].woken)
		}
	}
}
