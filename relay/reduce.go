package relay

import (
	"context"
	"errors"

	"github.com/outboxrelay/outbox"
)

// One event can make a whole call fail: it is larger than the broker takes, or the broker closes the connection at it.
// To the sink that looks like a broker that is down, and the oldest event would stop all others for ever. So a call
// that failed as a whole is made smaller while the sink takes other parts of it, down to the event that fails alone. If
// the sink can say that it takes others, that is the event's own failure: it counts its attempts, and becomes a dead
// letter. Otherwise it waits by itself.
const (
	reduceCalls = 64 // for one batch; some 20 find one event among 1000
	// How often a batch is halved although no part of it has been taken: there may be several such events.
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

// reduce publishes what failed as a whole in smaller parts, and changes results accordingly. Where the sink takes none
// they stay what they were: the broker is down.
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

// split publishes the deliveries at the given indexes, which failed together, in two calls, and what fails wholly again
// in smaller ones.
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
		if errors.Is(result.Err, outbox.ErrNotAttempted) {
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
