package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
)

// claim reads the next records of the lanes. It is a plain read: who may read a lane is settled by the lease, so
// claiming costs no write and leaves nothing behind when the relay dies.
//
// It asks by state and never by "position > last": a lower position may commit later, and would be lost.
//
// One that ran out of time is given twice as much at the next try, up to 8 times DatabaseTimeout. With the same limit a
// single row could hold its lanes for ever. A number that is 1 GB long took 15 s to turn into text, on a busy machine.
func (w *worker) claim(ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit) ([]*outbox.Record, error) {
	limit = w.inflight.exclude(limit)
	limit.Paused, limit.Destination = w.keeper.paused().Paused, w.cfg.table.Destination
	if w.owesPaused() {
		limit.Paused.Destinations = nil // its sink owes what goes there, and others do not wait for it
	}
	if !w.cfg.table.Layout.KeepsState() {
		limit.Paused.Topics = nil // likewise: a position passes everything
	}
	limit.Records = w.pacer.modest(limit.Records)
	// A connection whose other end has vanished would never answer, and the relay would stand still without an error.
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, w.pacer.timeout(&w.cfg))
	defer cancel()
	records, err := w.store.Claim(limited, lanes, limit)
	if err != nil {
		if ctx.Err() == nil {
			w.pacer.failed(err, limited.Err() != nil)
		}
		return nil, fmt.Errorf("claim: %w", err)
	}
	w.pacer.answered(limit, len(records), time.Since(began))
	w.inflight.taken.answered(time.Now())
	return records, nil
}

// full tells whether a claim left something behind for the next one, as far as one can see from it.
func (w *worker) full(records []*outbox.Record) bool {
	if len(records) >= w.cfg.BatchRecords {
		return true
	}
	bytes := 0
	for _, r := range records {
		bytes += len(r.Payload)
	}
	return bytes > w.cfg.BatchBytes/2 // ended for the size of its payloads
}
