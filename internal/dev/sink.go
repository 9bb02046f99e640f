package dev

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink"
)

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

// poison is how the sink refuses an event, nil if it does not. What an operator has replayed is taken: as if whoever
// receives it had been corrected.
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
	held := map[int64]uuid.UUID{} // keys, each behind an event that was refused
	var free []outbox.Delivery
	var at []int
	for i := range batch {
		d := &batch[i]
		first, behind := held[d.OrderKey]
		switch err := poison(d); {
		case b.broken.Load():
			results[i].Err = errBroken
		case d.Keyed && behind && first != d.ID:
			results[i].Err = outbox.ErrNotAttempted
		case err != nil:
			results[i].Err = err
			held[d.OrderKey] = d.ID
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

// Ping implements outbox.Pinger.
func (b breakable) Ping(ctx context.Context) error {
	if b.broken.Load() {
		return errBroken
	}
	return b.Sink.Ping(ctx)
}

// Probe implements outbox.Prober.
func (b breakable) Probe(ctx context.Context) error {
	if p, ok := b.Sink.(outbox.Prober); ok && !b.broken.Load() {
		return p.Probe(ctx)
	}
	return errBroken // or the sink cannot tell, which is an error too
}

// PublishTimeout implements outbox.Slow.
func (b breakable) PublishTimeout() time.Duration {
	if slow, ok := b.Sink.(outbox.Slow); ok {
		return slow.PublishTimeout()
	}
	return 0
}
