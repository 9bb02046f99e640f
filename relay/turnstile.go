package relay

import "time"

// turnstile counts the turns at a sink, and lets in one who wants to be the only one: it begins
// when the others have left, and none begins before it has left. It is guarded by its breaker.
type turnstile struct {
	underway int
	alone    bool      // the one that is
	reserved time.Time // until when no other begins, because such a one waits for those under way
}

// aloneWait is how often to ask for a turn while somebody wants to be alone.
const aloneWait = 5 * time.Millisecond

// ask returns how long to wait before asking again; 0: a turn may begin.
func (t *turnstile) ask(alone bool, now time.Time) time.Duration {
	switch {
	case t.alone || !alone && now.Before(t.reserved):
		return aloneWait
	case alone && t.underway > 0:
		t.reserved = now.Add(10 * aloneWait) // it asks again before; a time needs no taking back if it does not
		return aloneWait
	}
	return 0
}

// free tells whether a turn that was yielded may go on.
func (t *turnstile) free(alone bool, now time.Time) bool {
	return !t.alone && (!alone || t.underway == 0) && !now.Before(t.reserved)
}

func (t *turnstile) begin(alone bool) {
	t.underway++
	t.alone = alone
}

func (t *turnstile) end(alone bool) {
	t.underway--
	if alone {
		t.alone, t.reserved = false, time.Time{}
	}
}
