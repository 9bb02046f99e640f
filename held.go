package outbox

// heldKeys remembers, for one claim, the keys of which nothing later may pass.
type heldKeys map[int64]struct{}

func (h heldKeys) hold(rec *Record) {
	if rec.Keyed {
		h[rec.OrderKey] = struct{}{}
	}
}

func (h heldKeys) holds(rec *Record) bool {
	if len(h) == 0 || !rec.Keyed {
		return false
	}
	_, ok := h[rec.OrderKey]
	return ok
}

// leaveOut leaves what waits in the worker to be settled, and what is behind it in its key, out of a claim.
func (w *worker) leaveOut(limit ClaimLimit) ClaimLimit {
	listed := heldKeys{}
	leave := func(rec *Record) {
		switch {
		case !rec.Keyed:
			limit.WithoutEvents = append(limit.WithoutEvents, rec.ID)
		case !listed.holds(rec):
			listed.hold(rec)
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
