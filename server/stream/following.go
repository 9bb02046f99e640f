package stream

import (
	"context"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

// following is what a run and a topic have in common: readers to wake, and a subscription.
type following struct {
	hub    *Hub
	source Source
	ready  chan struct{} // closed when begin is done

	refs   int         // readers, guarded by Hub.mu
	linger *time.Timer // ends it, guarded by Hub.mu; nil while there are readers

	mu      sync.Mutex
	readers map[*Reader]struct{}
	stop    func() // ends the subscription
}

func (f *following) common() *following { return f }

// subscribe has l told of what is published from now on.
func (f *following) subscribe(ctx context.Context, channel string, l outbox.Listener) (acknowledged bool) {
	// A reader that goes away while it is the first must not leave the next one with half a
	// beginning.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), subscribeTimeout)
	defer cancel()
	acknowledged, stop := f.hub.live.Subscribe(ctx, channel, l)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop = stop
	return acknowledged
}

// wake tells all readers to look again. f.mu is held.
func (f *following) wake() {
	for r := range f.readers {
		r.look()
	}
}

func (f *following) end() {
	f.mu.Lock()
	stop := f.stop
	f.mu.Unlock()
	if stop != nil {
		stop() // not under the lock: it waits for a call of the listener, which takes it
	}
}

func (h *Hub) newTail(s Source) tail {
	f := &following{hub: h, source: s, ready: make(chan struct{}), readers: map[*Reader]struct{}{}}
	if s.Topic != "" {
		return &topicTail{following: f, ring: ring{size: topicRing}}
	}
	return &runTail{following: f, ring: ring{size: runRing}}
}

// follow returns the tail of s for one more reader, ready.
func (h *Hub) follow(ctx context.Context, s Source, r *Reader) (tail, error) {
	h.mu.Lock()
	t, there := h.tails[s]
	if !there {
		t = h.newTail(s)
		h.tails[s] = t
	}
	f := t.common()
	f.refs++
	if f.linger != nil {
		f.linger.Stop()
		f.linger = nil
		h.lingering--
	}
	h.mu.Unlock()
	f.mu.Lock()
	f.readers[r] = struct{}{}
	f.mu.Unlock()
	if !there {
		func() {
			defer close(f.ready) // whatever happens: others wait for it
			t.begin(ctx)
		}()
	}
	select {
	case <-f.ready:
		return t, nil
	case <-ctx.Done():
		h.leave(t, r)
		return nil, ctx.Err()
	}
}

// maxLingering bounds the tails that are kept without readers. Each costs a subscription, and
// anybody may name topics.
const maxLingering = 1000

// leave takes a reader from a tail, which ends with its last one. A run's ends at once, because its
// log has all of it, a topic's some time later if it has anything.
func (h *Hub) leave(t tail, r *Reader) {
	f := t.common()
	f.mu.Lock()
	delete(f.readers, r)
	f.mu.Unlock()
	keeps := t.keeps()
	h.mu.Lock()
	f.refs--
	over := f.refs == 0 && (!keeps || h.lingering >= maxLingering)
	if over {
		delete(h.tails, f.source)
	} else if f.refs == 0 {
		h.lingering++
		f.linger = time.AfterFunc(linger, func() { h.forget(t) })
	}
	h.mu.Unlock()
	if over {
		h.endWhenReady(t)
	}
}

// forget ends the tail of a topic for which nobody came back.
func (h *Hub) forget(t tail) {
	f := t.common()
	h.mu.Lock()
	over := f.refs == 0 && h.tails[f.source] == t
	if over {
		h.lingering--
		delete(h.tails, f.source)
	}
	h.mu.Unlock()
	if over {
		h.endWhenReady(t)
	}
}

// endWhenReady ends a tail, after its beginning: whoever began it may still be subscribing.
func (h *Hub) endWhenReady(t tail) {
	<-t.common().ready
	t.end()
}
