package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

const (
	// tenantsPerClaim is how many tenants share a fair claim; where there are more, the next one
	// begins behind them.
	tenantsPerClaim = 64
	// looksPerClaim is how many rows a fair claim looks at, all tenants together, when it finds
	// none that is due: 40 ms, measured.
	looksPerClaim = 40_000
	// A tenant that is found alone is taken to be for aloneFor times what finding it took, and for
	// aloneAtMost. The search steps over what is delivered and not vacuumed: it was 8 % of a drain
	// of 100,000 events without tenants.
	aloneFor    = 40
	aloneAtMost = 250 * time.Millisecond
)

// findFairness looks whether claims of the table can be shared by its tenants. A key and a
// sequence must lie within one, and an index must give each one's undelivered rows in their order.
// Without the index a claim would sort all that is undelivered.
func (s *store) findFairness(ctx context.Context) error {
	by := s.layout.Tenant + s.layout.App // at most one of them is set
	if by == "" || s.layout.Key != "" && !slices.Contains(s.layout.KeyScope, by) ||
		s.layout.KeylessScope != "" && s.layout.KeylessScope != by {
		return nil
	}
	find, err := plain("claim_index")
	if err != nil {
		return err
	}
	rows, err := s.pool.Query(ctx, find, pgtable.QuoteTable(s.layout.Table), by, s.layout.Position)
	if err != nil {
		return fmt.Errorf("look for an index of %s by tenant: %w", s.layout.Table, err)
	}
	type index struct{ Name, Type, Collate string }
	indexes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[index])
	if err != nil {
		return fmt.Errorf("look for an index of %s by tenant: %w", s.layout.Table, err)
	}
	for _, i := range indexes {
		names := struct {
			sqltable.Layout
			By, Type, Collate string
		}{pgtable.Quote(s.layout), pgx.Identifier{by}.Sanitize(), i.Type, i.Collate}
		tenants, err := files.Statement("claim_tenants", names)
		if err != nil {
			return err
		}
		plan, err := s.pool.Query(ctx, "EXPLAIN "+tenants, nil, tenantsPerClaim)
		if err != nil {
			return fmt.Errorf("look for an index of %s by tenant: %w", s.layout.Table, err)
		}
		lines, err := pgx.CollectRows(plan, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("look for an index of %s by tenant: %w", s.layout.Table, err)
		}
		if !strings.Contains(strings.Join(lines, "\n"), " using "+i.Name+" ") {
			continue
		}
		s.fair.tenants, s.fair.last = tenants, map[int16]string{}
		s.fair.claim, err = files.Statement("claim_fair", names)
		return err
	}
	return nil
}

// claimFair gives each tenant that has undelivered rows an equal share of the claim, and what that
// leaves to the oldest rows of all. The shares come first and interleaved, so that a few rows
// behind a flood are in the first batch that is published, not in the last.
//
// Order holds within a tenant, and so within a key: of each one's rows both parts are the first
// that are due.
func (s *store) claimFair(ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit) ([]*outbox.Record, error) {
	ask := s.rows.Size.Limit(limit)
	records, err := s.readShares(ctx, lanes, ask, limit)
	if err != nil && !pgtable.OfTheData(err) { // of a row that cannot be read claimOldest makes a defect, in its time
		return nil, err
	}
	taken, bytes := make(map[uuid.UUID]bool, len(records)), 0
	for _, r := range records {
		taken[r.ID] = true
		bytes += len(r.Payload)
	}
	// A claim that is half full is as good as full to the relay: filling it up would mostly read
	// again what is here.
	if 2*len(records) < ask && bytes < limit.Bytes {
		more := limit
		more.Records, more.Bytes = ask-len(records), limit.Bytes-bytes
		rest, err := s.claimOldest(ctx, lanes, more)
		if err != nil {
			return nil, err
		}
		for _, r := range rest {
			if taken[r.ID] {
				continue
			}
			if bytes += len(r.Payload); bytes > limit.Bytes && len(records) > 0 {
				break
			}
			records = append(records, r)
		}
	}
	return records, nil
}

// readShares reads the tenants' shares, or nothing if a single tenant has undelivered rows.
func (s *store) readShares(
	ctx context.Context, lanes []outbox.Lane, ask int, limit outbox.ClaimLimit,
) ([]*outbox.Record, error) {
	tenants, err := s.nextTenants(ctx, lanes[0].Number)
	if err != nil || len(tenants) < 2 {
		return nil, err
	}
	share := (ask + len(tenants) - 1) / len(tenants)
	keys, ids := without(limit)
	return s.read(ctx, s.pool, s.fair.claim, ask, limit, pgtable.LaneBits(lanes), ask, keys, ids, tenants,
		max(share, looksPerClaim/len(tenants)), share)
}

// nextTenants returns the tenants whose turn it is, or none if a single one was found a moment ago.
func (s *store) nextTenants(ctx context.Context, lane int16) ([]string, error) {
	var behind *string
	began := time.Now()
	s.fair.mu.Lock()
	if last, ok := s.fair.last[lane]; ok {
		behind = &last
	}
	alone := began.Before(s.fair.alone)
	s.fair.mu.Unlock()
	if alone {
		return nil, nil
	}
	rows, err := s.pool.Query(ctx, s.fair.tenants, behind, tenantsPerClaim)
	if err != nil {
		return nil, fmt.Errorf("list tenants of %s: %w", s.layout.Table, err)
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list tenants of %s: %w", s.layout.Table, err)
	}
	s.fair.mu.Lock()
	defer s.fair.mu.Unlock()
	if len(tenants) > 0 {
		s.fair.last[lane] = tenants[len(tenants)-1]
	}
	if len(tenants) < 2 {
		now := time.Now()
		s.fair.alone = now.Add(min(aloneFor*now.Sub(began), aloneAtMost))
	}
	return tenants, nil
}
