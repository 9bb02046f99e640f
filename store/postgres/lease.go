package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
)

// Lease implements outbox.Store. The commit is synchronous, unlike the relay's others: after a crash of the server two relays
// must not both believe that they hold a lane.
func (s *Store) Lease(ctx context.Context, owner uuid.UUID, ttl time.Duration) ([]outbox.Lane, error) {
	var lanes []outbox.Lane
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.leaseDurable); err != nil {
			return fmt.Errorf("make the lease durable: %w", err)
		}
		rows, err := tx.Query(ctx, s.sql.leaseTake, s.layout.Table, owner, ttl.Microseconds())
		if err != nil {
			return fmt.Errorf("take lanes: %w", err)
		}
		lanes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l outbox.Lane, err error) {
			err = row.Scan(&l.Number, &l.Epoch)
			return l, err
		})
		if err != nil {
			return fmt.Errorf("take lanes: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lease lanes of %s: %w", s.layout.Table, err)
	}
	if len(lanes) < outbox.Lanes {
		// The others are another relay's, or their rows are gone (restored tables, TRUNCATE). Nobody could serve those, and every relay would
		// look as if it stood by. The next call takes what is made here.
		if _, err := s.pool.Exec(ctx, s.sql.leaseRows, s.layout.Table, outbox.Lanes); err != nil {
			return nil, fmt.Errorf("make lanes of %s: %w", s.layout.Table, err)
		}
	}
	slices.SortFunc(lanes, func(a, b outbox.Lane) int { return int(a.Number) - int(b.Number) })
	return lanes, nil
}

// Release implements outbox.Store.
func (s *Store) Release(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	numbers, epochs := splitLanes(lanes)
	if _, err := s.pool.Exec(ctx, s.sql.leaseRelease, s.layout.Table, owner, numbers, epochs); err != nil {
		return fmt.Errorf("release lanes of %s: %w", s.layout.Table, err)
	}
	return nil
}
