package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
)

// glance is the last look at a table.
type glance struct {
	outbox.Watched
	asked time.Time // when the look began: what was committed before is seen
}

// freshFor is how long after a look what it found is relied on. Looks that fail are followed by none, and whoever
// relied on them asks by himself again.
const freshFor = time.Second

func (g *glance) fresh() bool { return g != nil && time.Since(g.asked) < freshFor }

// watch looks at all tables until ctx ends. A relay with nothing to do so asks once every PollMax, where each worker of
// each table would ask by itself.
func (r *Relay) watch(ctx context.Context, tables []*tableRelay) error {
	stores := make([]outbox.Store, len(tables))
	for i, t := range tables {
		stores[i] = t.store
	}
	look, err := r.db.Watch(stores)
	if err != nil {
		return fmt.Errorf("watch tables: %w", err)
	}
	if look == nil {
		return nil
	}
	busy := make([]bool, len(tables))
	for ctx.Err() == nil {
		asked := time.Now()
		for i, t := range tables {
			busy[i] = t.busy(asked)
		}
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		seen, err := look(limited, busy)
		cancel()
		for i, t := range tables {
			if err != nil {
				t.seen.Store(nil)
			} else {
				t.see(&glance{seen[i], asked})
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(r.cfg.PollMax):
		}
	}
	return nil
}

// see takes note of a look, and wakes whoever slept because there was nothing to do.
func (r *tableRelay) see(now *glance) {
	before := r.seen.Swap(now)
	if before == nil {
		return
	}
	if now.Undelivered && !before.Undelivered {
		r.wake()
	}
	if now.Leases != before.Leases {
		signal(r.keeper.disturbed)
	}
}

// busy tells whether a worker has claimed something a moment before now. To ask whether there is more would cost a
// step over all that is delivered and not vacuumed: it was 4 % of a drain of 100,000 events.
func (r *tableRelay) busy(now time.Time) bool {
	return now.UnixNano()-r.claimed.Load() < int64(r.cfg.PollMax)
}

// quiet tells whether there is nothing to claim. It is asked once a worker has found that itself for a while, and has
// not been woken since.
func (r *tableRelay) quiet() bool {
	g := r.seen.Load()
	return g.fresh() && !g.Undelivered
}
