package dev

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink"
)

// before puts the switch of the page before a sink.
func (p *page) before(s sink.Sink) sink.Sink { return breakable{s, &p.broken} }

// breakable is a sink that the page can switch off, and that refuses poison.
type breakable struct {
	sink.Sink
	broken *atomic.Bool
}

var (
	errBroken = outbox.Unavailable(errors.New("the page of outbox dev has broken this sink"))
	errPoison = errors.New(`poison: outbox dev has its sink refuse a payload with "poison": true`)
)

const poisonTries = 3 // the last failure is for good

// poison is how the sink refuses an event, nil if it does not. What an operator has replayed is
// taken: as if whoever receives it had been corrected.
func poison(d *outbox.Delivery) error {
	var p struct {
		Poison bool `json:"poison"`
	}
	if err := json.Unmarshal(d.Payload, &p); err != nil || !p.Poison || d.Generation > 0 {
		return nil //nolint:nilerr // a payload that is no object is no poison
	}
	if d.Attempts+1 < poisonTries {
		return errPoison
	}
	return outbox.Permanent(errPoison)
}

// Publish implements outbox.Sink.
func (b breakable) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	results := make([]outbox.Result, len(batch))
	held := outbox.HeldKeys{}
	var free []outbox.Delivery
	var at []int
	for i := range batch {
		d := &batch[i]
		switch err := poison(d); {
		case b.broken.Load():
			results[i].Err = errBroken
		case held.Behind(d.Record):
			results[i].Err = outbox.ErrNotAttempted
		case err != nil:
			results[i].Err = err
			held.Hold(d.Record)
		default:
			free, at = append(free, *d), append(at, i)
		}
	}
	if len(free) > 0 {
		for k, answer := range b.Sink.Publish(ctx, free) {
			results[at[k]] = answer
		}
	}
	return results
}

// Abilities implements outbox.Able: they are the sink's, but for its Ping while it is broken.
func (b breakable) Abilities() outbox.Abilities {
	all := b.Sink.Abilities()
	if b.broken.Load() {
		all.Ping = func(context.Context) error { return errBroken }
	}
	return all
}
