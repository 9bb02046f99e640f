package relay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// publishBatch publishes one batch of a claim. Keys of which something was not delivered are held,
// and their later records are left for the next claim.
func (w *worker) publishBatch(t *turn, records []*outbox.Record) published {
	began := time.Now()
	w.askSubscriptions(t.hardStop, records)
	batch, owner, defects := w.route(records, t.held)
	batch, owner, recalled := w.inflight.taken.strike(batch, owner)
	ctx, call := w.publishing(t)
	fault.Hit(fault.BeforePublish)
	results, isolate, down := w.mode.publish(ctx, w, t, batch)
	fault.Hit(fault.AfterPublish)
	w.inflight.taken.published(batch, results)
	for i, r := range results {
		if r.Err != nil && !isOwed(r.Err) {
			t.held.Hold(batch[i].Record)
		}
	}
	waited := len(w.inflight.waiting)
	batch, owner, results = w.inflight.setAside(call, t.lanes, batch, owner, results)
	ended := time.Now()
	b := published{claimed: len(records), down: down,
		verdict: w.verdict(records, batch, owner, results, defects, isolate)}
	t.used += len(b.outcomes) + len(w.inflight.waiting) - waited
	b.report = outbox.BatchReport{
		Table: w.cfg.name(), Claimed: len(records), Duplicates: b.duplicates, Recalled: recalled, Owed: b.owed,
		Unsubscribed: b.unsubscribed, Unavailable: b.unavailable != nil, Publish: ended.Sub(began),
	}
	b.report.Latencies, b.report.Slowest = latencies(b.outcomes, ended)
	return b
}

// route turns claimed records into deliveries, but for those whose key is held. Records that cannot
// be routed get their failure in defects, and their keys are held.
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
		destinations, failure := r.outstanding(rec)
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
			one := outbox.Delivery{Record: rec, Envelope: r.cfg.table.Envelope, Origin: origin}
			one.Sink, one.Destination = r.address(d)
			batch = append(batch, one)
			owner = append(owner, i)
		}
	}
	return batch, owner, defects
}

// outstanding returns where rec still has to go: the names of destinations or, where routes say so,
// of addresses.
func (r *tableRelay) outstanding(rec *outbox.Record) ([]string, *outbox.Failure) {
	if rec.Defect != "" {
		return nil, &outbox.Failure{Reason: outbox.ReasonDeserializationFailed, Error: rec.Defect}
	}
	left, err := r.destinations(r, rec)
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
		_, d = r.address(d) // at whichever sink
		if r.cfg.table.Reserved(d) {
			problem := fmt.Sprintf("destination %q is reserved for the events of another table", d)
			return &outbox.Failure{Destination: d, Reason: outbox.ReasonHandlerMissing, Error: problem}
		}
	}
	return nil
}

// publishTimeout is how long a publish of the table may take.
func (r *tableRelay) publishTimeout() time.Duration {
	return max(r.cfg.PublishTimeout, slowness(r.sink))
}

// publishing returns the context of a publish. It ends at the latest when another relay may take
// the lanes over.
func (w *worker) publishing(t *turn) (context.Context, *call) {
	limit := w.publishTimeout()
	c := &call{slow: limit > w.cfg.PublishTimeout, began: t.began}
	c.lanes.Store(&t.lanes)
	return w.keeper.hold(t.hardStop, c, t.until, time.Now().Add(limit)), c
}

// patient tells a sink with a Timeout how long to wait for one of its receivers, unless too much is
// under way.
func (w *worker) patient(ctx context.Context) context.Context {
	if slowness(w.sink) == 0 || len(w.inflight.lingering()) >= lateRecords {
		return ctx
	}
	return late.With(ctx, latePatience)
}

// latencies are BatchReport.Latencies and Slowest of some outcomes.
func latencies(outcomes []outbox.Outcome, ended time.Time) (all []time.Duration, slowest *outbox.Record) {
	for i := range outcomes {
		if o := &outcomes[i]; o.State == outbox.Delivered && len(o.Owed) == 0 &&
			!o.Record.WrittenAt.IsZero() && o.Record.Generation == 0 {
			all = append(all, ended.Sub(o.Record.WrittenAt))
			if slowest == nil || o.Record.WrittenAt.Before(slowest.WrittenAt) {
				slowest = o.Record
			}
		}
	}
	return all, slowest
}

// mode is how the events of a table get to its sinks. It is chosen when the table is opened:
// direct, fanout or journal.
type mode interface {
	// ready tells whether all is known that a first turn needs.
	ready() bool
	// prepare asks the database, before a claim, what the worker does not know of its lanes.
	prepare(ctx context.Context, w *worker, lanes []outbox.Lane) error
	// owesPaused tells whether what goes to a paused destination is claimed all the same, and owed.
	owesPaused() bool
	// destinations returns where a record still has to go, and address what one of them is at which
	// sink.
	destinations(r *tableRelay, rec *outbox.Record) ([]string, error)
	address(destination string) (sink, name string)
	// publish publishes a batch. isolate says that what a part of the sink could not take waits by
	// itself, down that all of the sink is down.
	publish(ctx context.Context, w *worker, t *turn, batch []outbox.Delivery) (results []outbox.Result, isolate, down bool)
	// late takes over answers that have come after their batch was settled.
	late(w *worker, batch []outbox.Delivery, results []outbox.Result)
	// judge adds what becomes of a record to v, by the answers for its deliveries.
	judge(r *tableRelay, v *verdict, one judged)
	// settled is called once the outcomes of which something is owed are recorded.
	settled(outcomes []outbox.Outcome)
}

// direct is the mode of a table with one sink, whose rows wait in it for that sink.
type direct struct{}

func (direct) ready() bool { return true }

func (direct) prepare(context.Context, *worker, []outbox.Lane) error { return nil }

func (direct) owesPaused() bool { return false }

func (direct) settled([]outbox.Outcome) {}

func (direct) late(*worker, []outbox.Delivery, []outbox.Result) {}

func (direct) address(destination string) (sink, name string) { return "", destination }

func (direct) destinations(r *tableRelay, rec *outbox.Record) ([]string, error) {
	left, err := rec.Outstanding(r.cfg.table.Destination)
	if err != nil {
		return nil, err
	}
	return rec.Undelivered(r.expand(rec, left)), nil
}

func (direct) publish(
	ctx context.Context, w *worker, t *turn, batch []outbox.Delivery,
) (results []outbox.Result, isolate, down bool) {
	began := time.Now()
	results = w.publisher.publish(w.patient(ctx), batch)
	if !t.pass.probe { // which is small, and finds out whether the broker is there at all
		w.reduce(ctx, batch, results)
	}
	isolate, down = w.cfg.breaker.report(t.pass, time.Since(began), results)
	return results, isolate, down
}

// everyone is the destination of an event that goes to all receivers which have subscribed to it at
// its sink. Such an event becomes a delivery for each of them, so that what it was delivered to and
// its dead letter name them. They are found again at each attempt: who has come since gets it too,
// and who has left holds nobody up.
const everyone = "*"

// askSubscriptions learns who has subscribed, for a batch that has events for everyone. It asks
// after the claim: who subscribed before an event was committed gets it.
func (r *tableRelay) askSubscriptions(ctx context.Context, records []*outbox.Record) {
	subscriptions := outbox.AbilitiesOf(r.sink).Subscriptions
	if subscriptions == nil || !slices.ContainsFunc(records, func(rec *outbox.Record) bool {
		return len(rec.Destinations) == 0 && r.cfg.table.Destination.String() == everyone ||
			slices.Contains(rec.Destinations, everyone)
	}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.DatabaseTimeout)
	defer cancel()
	known, err := subscriptions(ctx)
	if err != nil {
		r.subscriptions.Store(nil)
		return
	}
	r.subscriptions.Store(&known)
}

// expand returns the destinations of a record with its subscribers in the place of everyone. As
// long as nobody knows them it stays as it is, and the sink says so.
func (r *tableRelay) expand(rec *outbox.Record, wanted []string) (all []string) {
	known := r.subscriptions.Load()
	if known == nil || !slices.Contains(wanted, everyone) {
		return wanted
	}
	of := *rec
	of.TenantID = cmp.Or(rec.TenantID, "default")
	add := func(name string) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, name := range wanted {
		if name != everyone {
			add(name)
			continue
		}
		for i := range *known {
			if (*known)[i].Fits(&of) {
				add((*known)[i].Destination)
			}
		}
	}
	return all
}
