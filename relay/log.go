package relay

import (
	"context"

	"github.com/outboxrelay/outbox"
)

// A log's rows are only inserted. What is delivered is known by a position, which passes each row once, so what a sink
// refuses is copied into outbox_deliveries as if the table had routes (spread.go). Two things are different where there
// are none. Nobody waits for the only sink, so its answers have PublishTimeout and not RouteTimeout. And while it is
// down nothing is copied: the rows stay in the log, no position passes them, and they come with a later claim.
// (docs/adr/0035)

// publishLogged publishes a batch to the only sink of a log, but for what goes by outbox_deliveries.
func (w *worker) publishLogged(ctx context.Context, pass *ticket, batch []outbox.Delivery) []outbox.Result {
	results := make([]outbox.Result, len(batch))
	all := make([]int, len(batch))
	for i := range all {
		all[i] = i
	}
	at := w.direct(w.cfg.table.Sink, batch, all, results)
	part := chosen(batch, at)
	answers := w.publish(ctx, part)
	if !pass.probe {
		w.reduce(ctx, part, answers)
	}
	for k, i := range at {
		results[i] = answers[k]
	}
	return results
}

// owe has the sink owe what it has refused, and what is behind that in its key. With isolate, it owes also what a part
// of it was not there for. Everything else without an answer stays in the log.
func (w *worker) owe(batch []outbox.Delivery, results []outbox.Result, isolate bool) {
	left := outbox.HeldKeys{}
	for i := range results {
		d, err := &batch[i], results[i].Err
		if err == nil {
			continue
		}
		if !isOwed(err) {
			class, _ := outbox.Classify(err)
			behind := class == outbox.ClassNotAttempted && (!d.Keyed || left.Holds(d.Record))
			if behind || class == outbox.ClassUnavailable && !isolate {
				left.Hold(d.Record)
				continue
			}
			results[i].Err = &owing{err}
		}
		w.owes.note(d.Lane, w.cfg.table.Sink)
	}
}
