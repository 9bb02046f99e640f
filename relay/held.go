package relay

import "github.com/outboxrelay/outbox"

// leaveOut leaves what waits in the worker to be settled, and what is behind it in its key, out of a claim.
func (w *worker) leaveOut(limit outbox.ClaimLimit) outbox.ClaimLimit {
	listed := outbox.HeldKeys{}
	leave := func(rec *outbox.Record) {
		switch {
		case !rec.Keyed:
			limit.WithoutEvents = append(limit.WithoutEvents, rec.ID)
		case !listed.Holds(rec):
			listed.Hold(rec)
			limit.WithoutKeys = append(limit.WithoutKeys, rec.OrderKey)
		}
	}
	for i := range w.unsettled.waiting {
		leave(w.unsettled.waiting[i].Record)
	}
	for _, r := range w.late.waiting {
		leave(r.Record)
	}
	return limit
}
