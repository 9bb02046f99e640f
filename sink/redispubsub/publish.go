package redispubsub

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// Bounds of one round. A script keeps Redis from everything else: 1000 deliveries of 500 bytes are some 4 ms, 4 MiB of large
// ones about the same.
const (
	maxDeliveries = 1000
	maxBytes      = 4 << 20 // of payload; a single larger one goes alone
)

// Publish implements outbox.Sink. An error about the batch (no answer, no writes, no rights) is of class
// outbox.ClassUnavailable and may leave deliveries published: they are answered as duplicates when they come again within the window.
// A channel that the user may not publish to is that delivery's own, retryable error.
//
// It returns as soon as ctx ends. The round trip it then gives up on is waited for by Close.
func (s *Sink) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	results := make([]outbox.Result, len(batch))
	var failed failedKeys
	// Rounds follow each other, they are not pipelined: what follows a failed delivery of its key may be in the next one.
	for from := 0; from < len(batch); {
		if ctx.Err() != nil {
			refuse(results[from:], interrupted(ctx))
			break
		}
		r := s.take()
		next := r.load(s, batch, from, failed, results)
		if !s.send(ctx, r) {
			refuse(results[from:], interrupted(ctx)) // r is not given back: the round trip still uses it
			break
		}
		err := r.settle(s, batch, results)
		s.give(r)
		if err != nil {
			refuse(results[next:], err)
			break
		}
		if next < len(batch) {
			failed.note(batch[from:next], results[from:next])
			fault.Hit(fault.MidBatch)
		}
		from = next
	}
	return results
}

// send makes the round trip and tells whether it was over before ctx was.
//
// go-redis ends a read at ctx's deadline but does not notice its cancellation, so the wait for it is here.
func (s *Sink) send(ctx context.Context, r *round) bool {
	if len(r.used) == 0 {
		return true
	}
	done := make(chan struct{})
	s.inFlight.Go(func() {
		defer close(done)
		s.roundTrip(ctx, r)
	})
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

func interrupted(ctx context.Context) error {
	return outbox.Unavailable(fmt.Errorf("publish to Redis: %w", ctx.Err()))
}

// refuse answers with err whatever has no answer yet.
func refuse(results []outbox.Result, err error) {
	for i := range results {
		if results[i] == (outbox.Result{}) {
			results[i].Err = err
		}
	}
}

// failedKeys holds the first failed event of each key, so that later rounds publish no later event of it. Within a round
// the script does the same.
type failedKeys map[int64]uuid.UUID

func (f failedKeys) hold(d *outbox.Delivery) bool {
	if len(f) == 0 || !d.Keyed {
		return false
	}
	id, ok := f[d.OrderKey]
	return ok && id != d.ID // the same event's other destinations go out
}

func (f *failedKeys) note(batch []outbox.Delivery, results []outbox.Result) {
	for i := range batch {
		d := &batch[i]
		if results[i].Err == nil || !d.Keyed || f.hold(d) {
			continue
		}
		if *f == nil {
			*f = failedKeys{}
		}
		(*f)[d.OrderKey] = d.ID
	}
}
