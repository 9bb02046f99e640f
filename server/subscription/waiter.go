package subscription

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Waiter wakes requests that wait for events. Run must be running.
type Waiter struct {
	store Store
	log   *slog.Logger
	news  chan struct{}
	done  chan struct{}

	drain   sync.Once
	mu      sync.Mutex
	waiting map[Name]chan struct{} // closed once there may be something
}

// NewWaiter returns one; a nil log is slog.Default.
func NewWaiter(store Store, log *slog.Logger) *Waiter {
	if log == nil {
		log = slog.Default()
	}
	return &Waiter{store: store, log: log, news: make(chan struct{}, 1), done: make(chan struct{}),
		waiting: map[Name]chan struct{}{}}
}

// Wake has the waiter look at once. It never blocks.
func (w *Waiter) Wake() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// Drain ends all waits, those to come too.
func (w *Waiter) Drain() { w.drain.Do(func() { close(w.done) }) }

// Wait returns true when a subscription may have something, and false once ctx ends or the waiter
// is drained.
func (w *Waiter) Wait(ctx context.Context, of Name) bool {
	w.mu.Lock()
	ready := w.waiting[of]
	if ready == nil {
		ready = make(chan struct{})
		w.waiting[of] = ready
	}
	w.mu.Unlock()
	select {
	case <-ready:
		return true
	case <-w.done:
	case <-ctx.Done():
	}
	return false
}

// lookEvery is how often leases and waits are found to be over, and news of which nobody told.
const lookEvery = time.Second

// Run looks for what the waiting requests wait for until ctx ends: one question to the database for
// all of them.
func (w *Waiter) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.news:
		case <-tick.C:
		}
		err := w.look(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			w.log.WarnContext(ctx, "cannot ask which subscriptions have events, trying again", "error", err)
		}
		failing = err != nil
	}
}

// look wakes those that may have something. A request that has gone is woken in vain, once.
func (w *Waiter) look(ctx context.Context) error {
	w.mu.Lock()
	names := make([]Name, 0, len(w.waiting))
	for name := range w.waiting {
		names = append(names, name)
	}
	w.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*lookEvery)
	defer cancel()
	ready, err := w.store.Ready(ctx, names)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range ready {
		if c := w.waiting[name]; c != nil {
			close(c)
			delete(w.waiting, name)
		}
	}
	return err
}
