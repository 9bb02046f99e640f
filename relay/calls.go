package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// One event can make a whole call fail: it is larger than the broker takes, or the broker closes
// the connection at it. To the sink that looks like a broker that is down, and the oldest event
// would stop all others for ever. So a call that failed as a whole is made smaller while the sink
// takes other parts of it, down to the event that fails alone. If the sink can say that it takes
// others, that is the event's own failure: it counts its attempts, and becomes a dead letter.
// Otherwise it waits by itself.
const (
	reduceCalls = 64 // for one batch; some 20 find one event among 1000
	// How often a batch is halved although no part of it has been taken: there may be several such
	// events.
	blindDepth  = 3
	blamedAfter = 3 // failures of an event alone, because a connection may break at anything
)

// reducing is the work on one batch whose call failed as a whole.
type reducing struct {
	publisher
	ctx   context.Context
	calls int
	lives bool  // the sink has taken a part
	lone  []int // indexes in the batch of what failed alone
}

// wholly tells whether a call failed as a whole, for the broker's sake as it seems.
func wholly(results []outbox.Result) bool {
	for _, r := range results {
		if class, _ := outbox.Classify(r.Err); r.Err == nil || class != outbox.ClassUnavailable {
			return false
		}
	}
	return len(results) > 0
}

// reduce publishes what failed as a whole in smaller parts, and changes results accordingly. Where
// the sink takes none they stay what they were: the broker is down.
func (p publisher) reduce(ctx context.Context, batch []outbox.Delivery, results []outbox.Result) {
	if len(batch) < 2 || !wholly(results) || ctx.Err() != nil {
		return
	}
	all := make([]int, len(batch))
	for i := range all {
		all[i] = i
	}
	work := reducing{publisher: p, ctx: ctx}
	work.split(batch, results, all, 1)
	// The broker may have gone down at the last part, which then is nobody's fault.
	if probe := outbox.AbilitiesOf(p.sink).Probe; probe != nil && len(work.lone) > 0 && probe(ctx) == nil {
		for _, i := range work.lone {
			// Not wrapped: it is no outage.
			results[i].Err = errors.New("the sink takes others, but fails at this event alone: " +
				results[i].Err.Error())
		}
	}
}

// split publishes the deliveries at the given indexes, which failed together, in two calls, and
// what fails wholly again in smaller ones.
func (w *reducing) split(batch []outbox.Delivery, results []outbox.Result, at []int, depth int) {
	if len(at) == 1 {
		w.alone(batch, results, at[0])
		return
	}
	if w.calls += 2; w.calls > reduceCalls || w.ctx.Err() != nil {
		return
	}
	together := make([]outbox.Delivery, len(at))
	for k, i := range at {
		together[k] = batch[i]
	}
	var parts [2][]int // of each half what was attempted
	again := func(part []outbox.Delivery) []outbox.Result { return w.publish(w.ctx, part) }
	for k, result := range halves(together, again) {
		results[at[k]] = result
		if class, _ := outbox.Classify(result.Err); class == outbox.ClassNotAttempted {
			continue
		}
		half := 0
		if k >= len(at)/2 {
			half = 1
		}
		parts[half] = append(parts[half], at[k])
	}
	var failed [][]int
	for _, part := range parts {
		answers := make([]outbox.Result, len(part))
		for k, i := range part {
			answers[k] = results[i]
		}
		if wholly(answers) {
			failed = append(failed, part)
		} else if len(part) > 0 {
			w.lives = true
		}
	}
	for _, part := range failed {
		if w.lives || depth < blindDepth {
			w.split(batch, results, part, depth+1)
		}
	}
}

// alone tries an event that failed alone some more times.
func (w *reducing) alone(batch []outbox.Delivery, results []outbox.Result, i int) {
	for range blamedAfter - 1 {
		answer := w.publish(w.ctx, batch[i:i+1])
		if results[i] = answer[0]; !wholly(answer) {
			return
		}
	}
	w.lone = append(w.lone, i)
}

// publisher publishes to one sink.
type publisher struct{ sink outbox.Sink }

// publish hands the batch to the sink. If the sink panics, the batch is published in halves until
// the delivery that does it is alone: it fails, the others do not pay for it. What had gone out
// before the panic goes out again, and a sink that refuses copies refuses it.
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

// halves publishes a batch in two calls. What is behind an event of its key that failed in the
// first is not attempted in the second.
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

// publishOnce makes one call, unless ctx has ended: another relay may hold the lanes. A sink that
// answers the wrong number of results has an unknown outcome.
func (p publisher) publishOnce(ctx context.Context, batch []outbox.Delivery) (results []outbox.Result, panicked error) {
	defer func() {
		if cause := recover(); cause != nil {
			panicked = fmt.Errorf("publish: sink panicked: %v", cause)
		}
	}()
	if ctx.Err() != nil {
		return failAll(batch, outbox.Unavailable(ctx.Err())), nil
	}
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

// slowness is how long a batch of the sink may take by its own account.
func slowness(s outbox.Sink) time.Duration {
	if asked := outbox.AbilitiesOf(s).Timeout; asked != nil {
		return asked()
	}
	return 0
}

// answerTime is how long a batch with routes waits for a sink.
func answerTime(s outbox.Sink, timeout time.Duration) time.Duration {
	if outbox.AbilitiesOf(s).TakesCopies {
		return 10 * timeout
	}
	return timeout
}

// owing is the answer for a delivery that its sink owes. It is no failure of the record's.
type owing struct{ err error } // of the sink; nil: it was not asked

// unasked is the answer for what goes by outbox_deliveries from the beginning.
var unasked = &owing{}

func (o *owing) Error() string {
	if o.err == nil {
		return "left to the sink's own relay"
	}
	return o.err.Error()
}

func (o *owing) Unwrap() error { return o.err }

func isOwed(err error) bool {
	var o *owing
	return errors.As(err, &o)
}
