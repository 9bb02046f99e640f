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
