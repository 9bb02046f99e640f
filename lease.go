package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lease is what this process believes it holds. Until is on the local monotonic clock and counts from before the request was
// sent, so it can only end earlier than the database's expiry, however slow the reply was and whatever the wall clock does.
type lease struct {
	lanes []Lane
	until time.Time
}

// leaseKeeper holds the lanes of one relay, renewing them in the background.
type leaseKeeper struct {
	relay *Relay

	mu      sync.Mutex
	current lease
	renewed time.Time
	lastErr error
}

// get returns a worker's share of the lanes held, and until when they may be used for publishing. ok is false if there are none or the
// margin before the end has begun. A lane always falls to the same worker.
func (k *leaseKeeper) get(worker int) (lanes []Lane, until time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.current.lanes {
		if int(l.Number)%k.relay.cfg.Workers == worker {
			lanes = append(lanes, l)
		}
	}
	until = k.current.until.Add(-k.relay.cfg.LeaseMargin)
	return lanes, until, len(lanes) > 0 && time.Now().Before(until)
}

// run renews until ctx ends. A relay that holds less than everything asks more often, so that a crashed peer's lanes are taken
// within a second of their expiry. So does one that got no answer: two failures a third of the lease apart, as when sessions are being
// terminated, would be the end of the lease although the database is well.
func (k *leaseKeeper) run(ctx context.Context) {
	for {
		held, err := k.renew(ctx)
		pause := k.relay.cfg.LeaseTTL / 3
		switch {
		case err != nil:
			pause /= 10
		case held < Lanes:
			pause = min(pause, time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (k *leaseKeeper) renew(ctx context.Context) (held int, err error) {
	cfg := &k.relay.cfg
	asked := time.Now()
	reqCtx, cancel := context.WithTimeout(ctx, cfg.LeaseTTL/3)
	defer cancel()
	lanes, err := k.relay.store.Lease(reqCtx, k.relay.owner, cfg.LeaseTTL)

	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.current.lanes)
	if err != nil {
		if ctx.Err() == nil && k.lastErr == nil {
			cfg.Logger.Warn("cannot renew lease", "table", cfg.Name, "error", err, "valid_for", time.Until(k.current.until).Round(time.Millisecond).String())
		}
		k.lastErr = err
		return before, err
	}
	k.lastErr = nil
	k.renewed = asked
	k.current = lease{lanes: lanes, until: asked.Add(cfg.LeaseTTL)}
	if len(lanes) != before {
		cfg.Logger.Info("lanes held", "table", cfg.Name, "lanes", len(lanes), "before", before)
		k.relay.Wake()
	}
	return len(lanes), nil
}

// release gives the lanes back so that a successor starts at once. ctx is the one of Run, which has ended.
func (k *leaseKeeper) release(ctx context.Context) error {
	k.mu.Lock()
	lanes := k.current.lanes
	k.current = lease{}
	k.mu.Unlock()
	if len(lanes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.relay.cfg.LeaseTTL/3)
	defer cancel()
	if err := k.relay.store.Release(ctx, k.relay.owner, lanes); err != nil {
		return fmt.Errorf("release lanes (they lapse by themselves within %s): %w", k.relay.cfg.LeaseTTL, err)
	}
	return nil
}
