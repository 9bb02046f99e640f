package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// watch looks at all tables until ctx ends. A relay with nothing to do so asks once every PollMax,
// where each worker of each table would ask by itself.
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
		backoff.Wait(ctx, r.cfg.PollMax)
	}
	return nil
}
