package stream

import (
	"context"
	"slices"

	"github.com/google/uuid"
)

// topicTail follows a topic of any outbox table. Its events have no numbers without gaps and are in no order but that of their delivery, so no log can say
// what a reader has missed. The newest are kept; a reader that was away longer, or a broker whose connection broke, means a reset: the reader
// is told that it may have missed something, and goes on with what is delivered from now on.
type topicTail struct {
	*following

	// Guarded by mu.
	ring    ring
	start   int64 // stands for the place before the first message of the ring
	trimmed bool  // messages have left the ring since
	deaf    bool  // the broker has not acknowledged: nothing arrives
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

// restart forgets everything: whatever cursor a reader has, it is none of ours.
func (t *topicTail) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring.clear()
	t.trimmed, t.deaf = false, false
	t.start = topicSeq(uuid.New())
	t.wake()
}

// beginning implements tail: now. While nothing arrives it is no place at all, so that the reader is told by a reset.
func (t *topicTail) beginning() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deaf {
		return nowhere
	}
	return t.now()
}

// nowhere is no message's number.
const nowhere = -1

// position implements tail.
func (t *topicTail) position() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now()
}

func (t *topicTail) now() int64 {
	if n := len(t.ring.messages); n > 0 {
		return t.ring.messages[n-1].Seq
	}
	return t.start
}

// Message implements Listener.
func (t *topicTail) Message(payload []byte) {
	m, ok := decodeTopic(payload, t.source.Tenant)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trimmed = t.ring.add(m) || t.trimmed
	t.hub.stats.fromLive.Add(1)
	t.wake()
}

// Lost implements Listener.
func (t *topicTail) Lost() {}

// Resumed implements Listener.
func (t *topicTail) Resumed() { t.restart() }

// next implements tail.
func (t *topicTail) next(_ context.Context, cursor int64) (messages []Message, reset bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	recent := t.ring.messages
	if cursor == t.start && !t.trimmed {
		return recent[:len(recent):len(recent)], false, nil
	}
	for i, m := range slices.Backward(recent) { // nearly always the last or close to it
		if m.Seq == cursor {
			return recent[i+1 : len(recent) : len(recent)], false, nil
		}
	}
	t.hub.stats.resets.Add(1)
	return nil, true, nil
}
