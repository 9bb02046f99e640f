package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Claim implements outbox.Store.
func (s *store) Claim(ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit) ([]*outbox.Record, error) {
	defer s.pool.Distrust(ctx)
	claim := s.claimOldest
	if limit.Fair && limit.HeldBack() == nil && s.fair.claim != "" && len(lanes) > 0 && !s.sieve.Wary() {
		claim = s.claimFair
	}
	records, err := claim(ctx, lanes, limit)
	if err == nil {
		_, err = s.number.Verify(ctx, repeated(records))
	}
	if err != nil {
		return nil, pgtable.NameBlocker(ctx, s.pool, s.layout.Table, err)
	}
	return records, nil
}

// repeated tells whether two events of one key have the same position.
func repeated(records []*outbox.Record) bool {
	for i := range records {
		for _, r := range slices.Backward(records[:i]) {
			if r.Position != records[i].Position {
				break
			}
			if r.Keyed && records[i].Keyed && r.OrderKey == records[i].OrderKey {
				return true
			}
		}
	}
	return false
}

// claimOldest claims without regard to whose rows they are.
func (s *store) claimOldest(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) (records []*outbox.Record, err error) {
	keys, ids := without(limit)
	ask := s.rows.Size.Limit(limit)
	sql, args := &s.sql.claimStatements, []any{pgtable.LaneBits(lanes), ask, keys, ids}
	if p := limit.Paused; limit.HeldBack() != nil {
		sql, args = &s.sql.claimPausing, append(args, pgtable.Likes(p.Topics), quotedNames(p.Destinations), s.template(limit))
	}
	err = s.sieve.Claim(ctx, s.pool, func(db pgtable.Querier, wary bool) (found bool, err error) {
		statement := sql.claim
		if wary { // one that sorts computes all rows before the first
			statement = sql.claimOneByOne
		}
		records, err = s.read(ctx, db, statement, ask, limit, args...)
		return len(records) > 0, err
	}, func(db pgtable.Querier, least bool) ([]*outbox.Record, error) {
		args[1] = 1
		statement := sql.claimUnreadable
		if least {
			statement = sql.claimBare
		}
		records, err = s.read(ctx, db, statement, 1, limit, args...)
		if err == nil && len(records) == 0 {
			err = pgx.ErrNoRows // it is held back
		}
		return records, err
	})
	if pgtable.OfTheData(err) {
		err = s.locate(ctx, err)
	}
	return records, err
}

// locate adds to the error of a claim where the row stands whose key cannot be read. Its lane is
// unknown, so no lane can pass it without a risk to the order of its key.
func (s *store) locate(ctx context.Context, refused error) error {
	var position, lane int64
	rows, err := s.pool.Query(ctx, s.sql.claimKeys)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&position, &lane}, func() error { return nil })
	}
	if !pgtable.OfTheData(err) {
		return refused
	}
	return fmt.Errorf("read the key of the first undelivered row behind position %d of %s: %w; correct or delete "+
		"that row, the rows behind it wait for it", position, s.layout.Table, refused)
}

// without returns what a claim leaves out, as the statements want it: not NULL.
func without(limit outbox.ClaimLimit) (keys []int64, ids [][16]byte) {
	keys, ids = limit.WithoutKeys, make([][16]byte, len(limit.WithoutEvents))
	if keys == nil {
		keys = []int64{}
	}
	for i, id := range limit.WithoutEvents {
		ids[i] = id
	}
	return keys, ids
}

// quotedNames are patterns of destinations as regular expressions of a whole name in a JSON array.
// A quote within one has a backslash before it.
func quotedNames(patterns []string) []string {
	all := []string{} // not NULL
	for _, p := range patterns {
		var quoted strings.Builder
		encoder := json.NewEncoder(&quoted)
		encoder.SetEscapeHTML(false) // as the server writes it
		if encoder.Encode(p) != nil {
			continue // no string fails
		}
		name := regexp.QuoteMeta(strings.TrimSuffix(quoted.String(), "\n"))
		all = append(all, `(?:^|[\[,] ?)`+strings.ReplaceAll(name, `\*`, `(?:[^"\\]|\\.)*`))
	}
	return all
}

// template is where events go that have no list of their own, as claim_row.sql fills it in.
func (s *store) template(limit outbox.ClaimLimit) string {
	if s.layout.Source == "" {
		return strings.ReplaceAll(limit.Destination.String(), "{source}", s.layout.Table)
	}
	return limit.Destination.String()
}

// read runs a claim of at most ask rows. With an error it returns the rows that came before it.
func (s *store) read(
	ctx context.Context, db pgtable.Querier, sql string, ask int, limit outbox.ClaimLimit, args ...any,
) ([]*outbox.Record, error) {
	rows, err := db.Query(ctx, sql, append([]any{pgtable.ClaimFormats}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", s.layout.Table, err)
	}
	defer rows.Close()
	batch, records, held := s.rows.Batch(ask), make([]*outbox.Record, 0, ask), limit.HeldBack()
	for rows.Next() {
		raw := rows.RawValues()
		if len(records) > 0 && batch.Exceeds(raw, limit) {
			break // Close discards the rest, which never was in memory at once; the next claim asks for fewer
		}
		rec, err := batch.Add(raw)
		if err != nil {
			return nil, fmt.Errorf("decode a row of %s: %w", s.layout.Table, err)
		}
		if held != nil && held(rec) {
			continue
		}
		records = append(records, rec)
	}
	rows.Close()
	s.rows.Size.Saw(len(records), batch.Bytes)
	if err := rows.Err(); err != nil {
		return records, fmt.Errorf("read %s: %w", s.layout.Table, pgtable.TimeLimit(ctx, err))
	}
	return records, nil
}
