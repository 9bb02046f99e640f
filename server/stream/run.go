package stream

import "context"

// runTail follows a run. Readers get what the log has, and nothing else: whoever may publish on the
// channel, or write a row of another table that goes there, could else show them anything. So a
// message is a sign that the log has something new. One read of the log serves all readers.
type runTail struct {
	*following

	// Guarded by mu.
	known   bool // top was read from the log
	top     int64
	ring    ring               // ends with top
	exists  int64              // an event with this number is said to be committed
	told    map[int64]struct{} // numbers above top that messages have named, for the counts
	filling bool               // somebody reads the log up to exists
	ended   int                // times in a row that the log was asked and the run's status was final
	lastSeq int64              // number of the run's last event, if ended is positive
}

// endedAsks is how often in a row a status has to be final. The time between is the application's,
// to append the terminal event in a transaction after that of the status.
const endedAsks = 2

// maxTold bounds what messages that no event of the log follows can pile up.
const maxTold = 1024

// begin subscribes first and asks for the top then: what is committed afterwards arrives live, what
// was before is in the log.
func (t *runTail) begin(ctx context.Context) {
	channel, err := t.hub.cfg.RunChannel(t.source.Tenant, t.source.Run)
	if err == nil {
		t.subscribe(ctx, channel, t)
	}
	// If the log does not answer, the next poll tells what is known.
	_ = t.hub.ask(context.WithoutCancel(ctx), t.source.Tenant, t)
}

func (t *runTail) last() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.top
}

// beginning and position are of no use to a run: its readers say where they begin, and are not
// reset.
func (t *runTail) beginning() int64 { return 0 }
func (t *runTail) position() int64  { return 0 }

// keeps implements tail: the log has all of it.
func (t *runTail) keeps() bool { return false }

// Message implements outbox.Listener. A number that is known by now is a copy. One that is not is
// looked for in the log, and so is whatever has no number (a row by plain SQL, a payload without
// its envelope).
func (t *runTail) Message(published []byte) {
	seq, numbered := sequence(published)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !numbered {
		seq = max(t.exists, t.top) + 1
	}
	if seq <= t.top {
		return
	}
	if t.told == nil {
		t.told = map[int64]struct{}{}
	}
	if len(t.told) < maxTold {
		t.told[seq] = struct{}{}
	}
	t.exists = max(t.exists, seq)
	t.fill()
}

// Lost implements outbox.Listener. The poll goes on.
func (t *runTail) Lost() {}

// Resumed implements outbox.Listener. The poll finds what was missed.
func (t *runTail) Resumed() {}

// reached is told the number of the run's last event, and what was known before the log was asked.
func (t *runTail) reached(top, before int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.known:
		t.known, t.top = true, top
		t.wake()
	case top < before:
		// The log has lost events: a database that took over had not received them. Their numbers
		// will be given to others, and readers that have seen them cannot go on as if nothing had
		// happened.
		t.top, t.exists = top, top
		clear(t.told)
		t.ring.clear()
		for r := range t.readers {
			r.beyond.Store(true)
		}
		t.wake()
	}
	t.exists = max(t.exists, top)
	t.fill()
}

// mark records whether the run's status is final, and has the readers of one that is look again.
func (t *runTail) mark(ended bool, last int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ended {
		t.ended = 0
		return
	}
	t.ended, t.lastSeq = t.ended+1, last
	if t.ended >= endedAsks {
		t.exists = max(t.exists, last)
		t.fill()
		for r := range t.readers {
			r.mayEnd.Store(true)
		}
		t.wake()
	}
}

// add appends the event that follows top. mu is held.
func (t *runTail) add(m Message) {
	if m.Seq != t.top+1 {
		t.ring.clear()
	}
	t.ring.add(m)
	t.top = m.Seq
}

// fill has the log read up to what is known to exist. mu is held.
func (t *runTail) fill() {
	if !t.known || t.filling || t.exists <= t.top {
		return
	}
	select {
	case t.hub.fills <- t:
		t.filling = true
	default: // very much to do; the next poll comes by here
	}
}

// read reads the log up to what is known to exist. One read serves all readers.
func (t *runTail) read(ctx context.Context) {
	for {
		t.mu.Lock()
		top, exists := t.top, t.exists
		done := exists <= top
		if done {
			t.filling = false
		}
		t.mu.Unlock()
		if done {
			return
		}
		messages, err := t.hub.read(ctx, t.hub.log.News, t.source, top)
		t.mu.Lock()
		for _, m := range messages {
			if m.Seq <= t.top {
				continue
			}
			t.add(m)
			// What is beyond exists was committed since the read was asked for: its message is on
			// its way.
			if _, told := t.told[m.Seq]; told || m.Seq > t.exists {
				delete(t.told, m.Seq)
				t.hub.stats.fromLive.Add(1)
			} else {
				t.hub.stats.gaps.Add(1)
			}
		}
		if len(messages) > 0 {
			t.wake()
		}
		over := err != nil || len(messages) == 0
		if over {
			t.filling = false
			if t.exists == exists {
				t.exists = t.top // the next poll tries again
				clear(t.told)
			}
			t.fill() // what has arrived since the page was asked for is no reason to wait
		}
		t.mu.Unlock()
		if over {
			return
		}
	}
}

// next implements tail.
func (t *runTail) next(ctx context.Context, cursor int64) (messages []Message, _ bool, err error) {
	t.mu.Lock()
	if !t.known || cursor >= t.top {
		t.mu.Unlock()
		return nil, false, nil
	}
	if recent := t.ring.messages; len(recent) > 0 && cursor+1 >= recent[0].Seq {
		messages = recent[cursor+1-recent[0].Seq:]
		t.mu.Unlock()
		return messages[:len(messages):len(messages)], false, nil
	}
	t.mu.Unlock()
	messages, err = t.hub.read(ctx, t.hub.log.Page, t.source, cursor)
	t.hub.stats.fromLog.Add(int64(len(messages)))
	return messages, false, err
}
