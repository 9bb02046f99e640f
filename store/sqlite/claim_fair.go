package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
)

const (
	// tenantsPerClaim is how many tenants share a fair claim; where there are more, the next one
	// begins behind them.
	tenantsPerClaim = 64
	// looksPerClaim is how many rows a fair claim looks at, all tenants together, when it finds
	// none that is due.
	looksPerClaim = 20_000
)

// findFairness looks whether claims of the table can be shared by its tenants. A key and a
// sequence must lie within one, and an index must give each one's undelivered rows in their order.
// Without the index a claim would sort all that is undelivered.
func (s *store) findFairness(ctx context.Context, names tableNames, rowid bool) error {
	by := s.layout.Tenant + s.layout.App // at most one of them is set
	if by == "" || s.layout.Key != "" && !slices.Contains(s.layout.KeyScope, by) ||
		s.layout.KeylessScope != "" && s.layout.KeylessScope != by {
		return nil
	}
	names.By = sqlitetable.QuoteName(by)
	if err := s.findIndex(ctx, "claim_fair", &names, &names.OfTenants, by, s.layout.Position, rowid); err != nil ||
		names.OfTenants == "" {
		return err
	}
	s.fair.last = map[int16]any{}
	return files.Fill(names, map[string]*string{"claim_tenants": &s.fair.tenants.text, "claim_fair": &s.fair.claim.text})
}

// claimFair gives each tenant that has undelivered rows an equal share of the claim, and what that
// leaves to the oldest rows of all. The shares come first and interleaved, so that a few rows
// behind a flood are in the first batch that is published, not in the last. All is read in one
// state of the file, at one time.
//
// Order holds within a tenant, and so within a key: of each one's rows both parts are the first
// that are due.
func (s *store) claimFair(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) (records []*outbox.Record, err error) {
	// Before the snapshot takes a connection: it may be the only one.
	for _, p := range []*prepared{&s.fair.tenants, &s.fair.claim, &s.sql.claim} {
		if _, err := p.on(ctx, s.db.read); err != nil {
			return nil, err
		}
	}
	err = s.db.snapshot(ctx, func(tx *sql.Tx) error {
		bits, now := laneBits(lanes), stamp(time.Now())
		bytes := 0
		if records, bytes, err = s.readShares(ctx, tx, lanes[0].Number, bits, now, limit); err != nil {
			return err
		}
		// A claim that is half full is as good as full to the relay: filling it up would mostly
		// read again what is here.
		if 2*len(records) >= limit.Records || bytes >= limit.Bytes {
			return nil
		}
		more := limit
		more.Records, more.Bytes = limit.Records-len(records), limit.Bytes-bytes
		rest, err := s.claimOldest(ctx, tx, bits, now, more)
		if err != nil {
			return err
		}
		taken := make(map[uuid.UUID]bool, len(records))
		for _, r := range records {
			taken[r.ID] = true
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
		return nil
	})
	return records, err
}

// readShares reads the tenants' shares, or nothing if a single tenant has undelivered rows. It
// reads the first record of every tenant, then the second of each, so that whoever stops reading
// has served all alike.
func (s *store) readShares(
	ctx context.Context, tx *sql.Tx, lane int16, bits int64, now string, limit outbox.ClaimLimit,
) (records []*outbox.Record, bytes int, err error) {
	tenants, err := s.nextTenants(ctx, tx, lane)
	if err != nil || len(tenants) < 2 {
		return nil, 0, err
	}
	claim, err := s.fair.claim.on(ctx, s.db.read)
	if err != nil {
		return nil, 0, err
	}
	claim = tx.StmtContext(ctx, claim)
	share := (limit.Records + len(tenants) - 1) / len(tenants)
	shares := make([][]*outbox.Record, len(tenants))
	each := limit
	each.Records, each.Bytes = share, max(limit.Bytes/len(tenants), 1)
	for i, tenant := range tenants {
		if shares[i], _, err = s.read(ctx, claim, each, bits, now, share, tenant,
			max(share, looksPerClaim/len(tenants))); err != nil {
			return nil, 0, err
		}
	}
	for turn := range share {
		for _, of := range shares {
			if turn >= len(of) {
				continue
			}
			size := len(of[turn].Payload)
			if len(records) == limit.Records || len(records) > 0 && bytes+size > limit.Bytes {
				return records, bytes, nil
			}
			bytes += size
			records = append(records, of[turn])
		}
	}
	return records, bytes, nil
}

// nextTenants returns the tenants whose turn it is.
func (s *store) nextTenants(ctx context.Context, tx *sql.Tx, lane int16) (tenants []any, err error) {
	list, err := s.fair.tenants.on(ctx, s.db.read)
	if err != nil {
		return nil, err
	}
	s.fair.mu.Lock()
	behind := s.fair.last[lane]
	s.fair.mu.Unlock()
	rows, err := tx.StmtContext(ctx, list).QueryContext(ctx, behind, tenantsPerClaim)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var tenant any // as it is stored: a number is not equal to its text
		if err := rows.Scan(&tenant); err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant)
	}
	if len(tenants) > 0 {
		s.fair.mu.Lock()
		s.fair.last[lane] = tenants[len(tenants)-1]
		s.fair.mu.Unlock()
	}
	return tenants, rows.Err()
}
