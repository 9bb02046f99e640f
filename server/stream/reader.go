package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrBeyond says that a reader has seen events that the log does not have (any more): a database
// that took over had not received them. It has to begin again.
var ErrBeyond = errors.New("the log ends before the reader's cursor")

// Reader reads some sources, each from its own cursor on. It is for one goroutine.
type Reader struct {
	hub     *Hub
	tails   []tail
	cursors []int64
	turn    int           // whose turn it is to be looked at first: a busy source must not hide the others
	wake    chan struct{} // something may have come
	timer   *time.Timer
	beyond  atomic.Bool
	ended   atomic.Bool
	mayEnd  atomic.Bool // Ended may have changed
}

// Start is where a reader begins: a source, and the number of the last event it has.
type Start struct {
	Source
	After int64
	Now   bool // instead of After: with what comes from now on (a topic only)
}

// Batch is what a reader is given: messages of one source.
type Batch struct {
	Source   int // its place in the reader's list
	Messages []Message
	// Reset says that messages of a topic may have been missed. The cursors are those to go on
	// with.
	Reset bool
}

// Open follows sources. It returns once their history can be read without missing what is published
// meanwhile. The reader must be closed. Errors are ctx's.
func (h *Hub) Open(ctx context.Context, starts ...Start) (*Reader, error) {
	r := &Reader{hub: h, wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	h.stats.readers.Add(1)
	// All at once: each may wait for the broker.
	var following sync.WaitGroup
	tails, errs := make([]tail, len(starts)), make([]error, len(starts))
	for i, s := range starts {
		following.Go(func() { tails[i], errs[i] = h.follow(ctx, s.Source, r) })
	}
	following.Wait()
	for i, s := range starts {
		if errs[i] != nil {
			continue
		}
		cursor := s.After
		if s.Now {
			cursor = tails[i].beginning()
		}
		r.tails, r.cursors = append(r.tails, tails[i]), append(r.cursors, cursor)
	}
	if err := errors.Join(errs...); err != nil {
		r.Close()
		return nil, fmt.Errorf("follow: %w", err)
	}
	return r, nil
}

// Close ends the reader.
func (r *Reader) Close() {
	for _, t := range r.tails {
		r.hub.leave(t, r)
	}
	r.tails = nil
	r.timer.Stop()
	r.hub.stats.readers.Add(-1)
}

// Cursors returns the number of the last event given out of each source: where a later reader goes
// on. The slice is the reader's.
func (r *Reader) Cursors() []int64 { return r.cursors }

// End makes Next return ErrEnded, now and from then on. It may be called at any time by anybody; a
// context for each reader would cost half a kilobyte more.
func (r *Reader) End() {
	r.ended.Store(true)
	r.look()
}

// ErrEnded says that End was called.
var ErrEnded = errors.New("the reader was ended")

// Ended tells whether a source, by its place in the reader's list, is a run whose status is final
// and all of whose events were given out. It is false for up to some seconds after the run's end.
func (r *Reader) Ended(source int) bool {
	t, ok := r.tails[source].(*runTail)
	if !ok {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended >= endedAsks && r.cursors[source] >= t.lastSeq
}

// Next returns what comes next, waiting for it up to idle; an empty batch says that nothing came,
// or that Ended may be true now.
// While the log cannot be read nothing comes. Errors: ctx's, ErrEnded and ErrBeyond.
func (r *Reader) Next(ctx context.Context, idle time.Duration) (Batch, error) {
	deadline := time.Now().Add(idle)
	for {
		if r.ended.Load() {
			return Batch{}, ErrEnded
		}
		b, found, err := r.pull(ctx)
		if r.beyond.Load() { // what was pulled may have numbers that this reader has seen on other events
			return Batch{}, ErrBeyond
		}
		if found || ctx.Err() != nil {
			return b, ctx.Err()
		}
		if r.mayEnd.Swap(false) {
			return Batch{}, nil
		}
		pause := time.Until(deadline)
		if err != nil {
			pause = min(pause, pollInterval)
		}
		if pause <= 0 {
			return Batch{}, nil
		}
		r.timer.Reset(pause)
		select {
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		case <-r.wake:
		case <-r.timer.C:
		}
	}
}

// pull looks at each source once, without waiting for anything but the log.
func (r *Reader) pull(ctx context.Context) (b Batch, found bool, problem error) {
	for range r.tails {
		i := r.turn
		r.turn = (r.turn + 1) % len(r.tails)
		messages, reset, err := r.tails[i].next(ctx, r.cursors[i])
		switch {
		case err != nil:
			problem = err
		case reset:
			r.cursors[i] = r.tails[i].position()
			return Batch{Source: i, Reset: true}, true, nil
		case len(messages) > 0:
			r.cursors[i] = messages[len(messages)-1].Seq
			return Batch{Source: i, Messages: messages}, true, nil
		}
	}
	return Batch{}, false, problem
}

// look makes Next look again.
func (r *Reader) look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
