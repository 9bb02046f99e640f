package stream

import (
	"context"
	"math/rand/v2"
)

// topicTail follows a topic of any outbox table. Its events have no numbers without gaps and are in
// no order but that of their delivery, so no log can say what a reader has missed. The newest are
// kept and numbered here. A reader that was away longer, or a broker whose connection broke, means
// a reset. The reader is told that it may have missed something, and goes on with what is delivered
// from now on.
type topicTail struct {
	*following

	// Guarded by mu.
	ring ring
	last int64 // number of the newest message, or where the numbers begin
	deaf bool  // the broker has not acknowledged: nothing arrives
}

func (t *topicTail) begin(ctx context.Context) {
	t.restart()
	channel, err := t.hub.cfg.TopicChannel(t.source.Tenant, t.source.Topic)
	heard := err == nil && t.subscribe(ctx, channel, t)
	t.mu.Lock()
	defer t.mu.Unlock()
	// A Resumed may have come before this; then readers are told once too often.
	t.deaf = !heard
}

// restart forgets everything and begins to number anywhere: whatever cursor a reader has, it is
// none of ours. The numbers do not come of the event ids, because one event may be published again,
// by an operator's replay.
func (t *topicTail) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring.clear()
	t.deaf = false
	t.last = 1 + rand.Int64N(1<<62)
	t.wake()
}

// beginning implements tail: now. While nothing arrives it is no place at all, so that the reader
// is told by a reset.
func (t *topicTail) beginning() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deaf {
		return nowhere
	}
	return t.last
}

// nowhere is no message's number.
const nowhere = -1

// position implements tail.
func (t *topicTail) position() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// keeps implements tail.
func (t *topicTail) keeps() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ring.messages) > 0
}

// Message implements outbox.Listener.
func (t *topicTail) Message(payload []byte) {
	m, ok := decodeTopic(payload, t.source.Tenant)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	m.Seq = t.last
	t.ring.add(m)
	t.hub.stats.fromLive.Add(1)
	t.wake()
}

// Lost implements outbox.Listener.
func (t *topicTail) Lost() {}

// Resumed implements outbox.Listener.
func (t *topicTail) Resumed() { t.restart() }

// next implements tail.
func (t *topicTail) next(_ context.Context, cursor int64) (messages []Message, reset bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	recent := t.ring.messages
	if missed := t.last - cursor; missed >= 0 && missed <= int64(len(recent)) {
		return recent[int64(len(recent))-missed : len(recent) : len(recent)], false, nil
	}
	t.hub.stats.resets.Add(1)
	return nil, true, nil
}
