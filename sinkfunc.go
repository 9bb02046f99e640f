package outbox

import (
	"context"

	"github.com/google/uuid"
)

// SinkFunc is a Sink for the simple case: a function that publishes one delivery. The context ends when the relay's
// time for the batch is over.
//
// Deliveries of a batch are published one after another, in their order. After an error no later event of that key is
// published. The error is classed as a Sink's is: Permanent, RetryAfter, Unavailable, or any other, which is tried
// again. A function that may have published and returns an error publishes a copy the next time: it should refuse
// copies by Delivery.ID, Destination and Generation where its receiver cannot.
type SinkFunc func(ctx context.Context, d Delivery) error

// Publish implements Sink.
func (publish SinkFunc) Publish(ctx context.Context, batch []Delivery) []Result {
	results := make([]Result, len(batch))
	failed := map[int64]uuid.UUID{} // by key: the event that failed; its other destinations are served
	for i := range batch {
		d := &batch[i]
		event, held := failed[d.OrderKey]
		switch {
		case ctx.Err() != nil:
			results[i].Err = Unavailable(ctx.Err())
		case d.Keyed && held && event != d.ID:
			results[i].Err = ErrNotAttempted
		default:
			if results[i].Err = publish(ctx, *d); results[i].Err != nil && d.Keyed {
				failed[d.OrderKey] = d.ID
			}
		}
	}
	return results
}
