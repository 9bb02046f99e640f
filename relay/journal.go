package relay

import (
	"context"
	"time"

	"github.com/outboxrelay/outbox"
)

// journal is the mode of a log without routes, and of a table with one sink that owes something of
// it. A log's rows are only inserted. What is delivered is known by a position, which passes each
// row once, so what the sink refuses is copied into outbox_deliveries as in a fanout. Two things
// are different. Nobody waits for the only sink, so its answers have PublishTimeout and not
// RouteTimeout. And while it is down nothing is copied: the rows stay, no position passes them, and
// they come with a later claim. (docs/adr/0035)
type journal struct {
	fanout
	direct direct
}

func (j *journal) address(destination string) (sink, name string) {
	return j.direct.address(destination)
}

func (j *journal) destinations(r *tableRelay, rec *outbox.Record) ([]string, error) {
	return j.direct.destinations(r, rec)
}

// publish publishes a batch to the only sink, but for what goes by outbox_deliveries.
func (j *journal) publish(
	ctx context.Context, w *worker, t *turn, batch []outbox.Delivery,
) (results []outbox.Result, isolate, down bool) {
	results = make([]outbox.Result, len(batch))
	all := make([]int, len(batch))
	for i := range all {
		all[i] = i
	}
	at := j.fanout.direct(w, w.cfg.table.Sink, batch, all, results)
	part := chosen(batch, at)
	began := time.Now()
	answers := w.publisher.publish(w.patient(ctx), part)
	if !t.pass.probe {
		w.reduce(ctx, part, answers)
	}
	for k, i := range at {
		results[i] = answers[k]
	}
	isolate, down = w.cfg.breaker.report(t.pass, time.Since(began), results)
	w.owe(batch, results, isolate)
	return results, isolate, down
}

// late implements mode: what the sink has refused it owes, as if it had said so at once.
func (j *journal) late(w *worker, batch []outbox.Delivery, results []outbox.Result) {
	w.owe(batch, results, true)
}

// owe has the sink owe what it has refused, and what is behind that in its key. With isolate, it
// owes also what a part of it was not there for. Everything else without an answer, or with one
// that is still to come, stays in the log, as does what had no turn.
func (w *worker) owe(batch []outbox.Delivery, results []outbox.Result, isolate bool) {
	left, owed := outbox.HeldKeys{}, outbox.HeldKeys{}
	for i := range results {
		d, err := &batch[i], results[i].Err
		if err == nil {
			continue
		}
		if !isOwed(err) {
			class, _ := outbox.Classify(err)
			stays := class == outbox.ClassNotAttempted && (left.Holds(d.Record) || !owed.Holds(d.Record))
			if stays || class == outbox.ClassUnavailable && !isolate || lateAnswer(err) != nil {
				left.Hold(d.Record)
				continue
			}
			results[i].Err = &owing{err}
		}
		owed.Hold(d.Record)
		w.owes.note(d.Lane, w.cfg.table.Sink)
	}
}
