package postgres

import (
	"context"
	"encoding/json"
	"errors"
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
	records, err := s.claim(ctx, lanes, limit)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.pool.Reset() // where one connection's other end has vanished, those of the idle ones may have too
	}
	return records, err
}

func (s *store) claim(ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit) ([]*outbox.Record, error) {
	if limit.Fair && limit.HeldBack() == nil && s.fair.claim != "" && len(lanes) > 0 {
		return s.claimFair(ctx, lanes, limit)
	}
	return s.claimOldest(ctx, lanes, limit)
}

// claimOldest claims without regard to whose rows they are.
//
// A row that the database cannot hand out ends the query at every attempt. It may be on a damaged
// page, or hold a number of 130,000 digits in eight bytes, repeated until the text is longer than a
// gigabyte. What was read before it is returned. Once it is the first, it comes without its payload
// and with a Defect, so that it costs its own key a dead letter and the others nothing.
func (s *store) claimOldest(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) ([]*outbox.Record, error) {
	keys, ids := without(limit)
	ask := s.rows.Size.Limit(limit)
	sql, args := &s.sql.claimStatements, []any{pgtable.LaneBits(lanes), ask, keys, ids}
	if p := limit.Paused; limit.HeldBack() != nil {
		sql, args = &s.sql.claimPausing, append(args, pgtable.Likes(p.Topics), quotedNames(p.Destinations), s.template(limit))
	}
	records, err := s.read(ctx, sql.claim, ask, limit, args...)
	switch {
	case err == nil:
		return records, nil
	case !pgtable.OfTheData(err):
		return nil, err
	case len(records) > 0:
		return records, nil
	}
	// None came before it, so it is the first; but not where the rows are sorted, because all of
	// them are computed before. There they are asked for one by one.
	sorted, explained := s.sorts(ctx, sql.claim, args...)
	if explained != nil {
		return nil, explained
	}
	if sorted {
		records, err = s.read(ctx, sql.claimOneByOne, ask, limit, args...)
		switch {
		case err == nil || !pgtable.OfTheData(err):
			return records, err
		case len(records) > 0:
			return records, nil
		}
	}
	args[1] = 1
	records, again := s.read(ctx, sql.claimUnreadable, 1, limit, args...)
	if again != nil || len(records) == 0 {
		return nil, err
	}
	records[0].Defect = "the row cannot be read: " + err.Error()
	return records, nil
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

// sorts tells whether the claim has no index that gives it the order. It is asked only when a row
// could not be read. Such a row may take seconds to find out about, and to do so twice would be
// longer than a claim may take.
func (s *store) sorts(ctx context.Context, claim string, args ...any) (bool, error) {
	rows, err := s.pool.Query(ctx, "EXPLAIN "+claim, args...)
	if err != nil {
		return false, fmt.Errorf("explain a claim of %s: %w", s.layout.Table, err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, fmt.Errorf("explain a claim of %s: %w", s.layout.Table, err)
	}
	return slices.ContainsFunc(plan, func(line string) bool { return strings.Contains(line, "Sort Key") }), nil
}

// read runs a claim of at most ask rows. With an error it returns the rows that came before it.
func (s *store) read(
	ctx context.Context, sql string, ask int, limit outbox.ClaimLimit, args ...any,
) ([]*outbox.Record, error) {
	rows, err := s.pool.Query(ctx, sql, append([]any{pgtable.ClaimFormats}, args...)...)
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
