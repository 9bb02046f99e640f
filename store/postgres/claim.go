package postgres

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// Claim implements outbox.Store.
func (s *store) Claim(ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit) ([]*outbox.Record, error) {
	if limit.Fair && limit.HeldBack() == nil && s.fair.claim != "" && len(lanes) > 0 {
		return s.claimFair(ctx, lanes, limit)
	}
	return s.claimOldest(ctx, lanes, limit)
}

// claimOldest claims without regard to whose rows they are.
//
// A row that the database cannot hand out ends the query at every attempt. It may be on a damaged page, or hold a
// number of 130,000 digits in eight bytes, repeated until the text is longer than a gigabyte. What was read before it
// is returned. Once it is the first, it comes without its payload and with a Defect, so that it costs its own key a
// dead letter and the others nothing.
func (s *store) claimOldest(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) ([]*outbox.Record, error) {
	keys, ids := without(limit)
	ask := s.claims.limit(limit)
	sql, args := &s.sql.claimStatements, []any{laneBits(lanes), ask, keys, ids}
	if p := limit.Paused; limit.HeldBack() != nil {
		sql, args = &s.sql.claimPausing, append(args, pgtable.Likes(p.Topics), quotedNames(p.Destinations), s.template(limit))
	}
	records, err := s.read(ctx, sql.claim, ask, limit, args...)
	switch {
	case err == nil:
		return records, nil
	case !ofTheData(err):
		return nil, err
	case len(records) > 0:
		return records, nil
	}
	// None came before it, so it is the first; but not where the rows are sorted, because all of them are computed
	// before. There they are asked for one by one.
	sorted, explained := s.sorts(ctx, sql.claim, args...)
	if explained != nil {
		return nil, explained
	}
	if sorted {
		records, err = s.read(ctx, sql.claimOneByOne, ask, limit, args...)
		switch {
		case err == nil || !ofTheData(err):
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

// quotedNames are patterns of destinations as regular expressions of a whole name in a JSON array. A quote within one
// has a backslash before it.
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

// sorts tells whether the claim has no index that gives it the order. It is asked only when a row could not be read.
// Such a row may take seconds to find out about, and to do so twice would be longer than a claim may take.
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
//
// The rows are decoded from the wire by hand: they are the relay's largest flow, and pgx's general Scan of twenty
// columns cost more than the query.
func (s *store) read(
	ctx context.Context, sql string, ask int, limit outbox.ClaimLimit, args ...any,
) ([]*outbox.Record, error) {
	rows, err := s.pool.Query(ctx, sql, append([]any{claimFormats}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", s.layout.Table, err)
	}
	defer rows.Close()
	var (
		block   = make([]outbox.Record, 0, min(ask, 256))
		records = make([]*outbox.Record, 0, ask)
		payload arena
		bytes   int
		held    = limit.HeldBack()
	)
	for rows.Next() {
		raw := rows.RawValues()
		size := len(raw[colPayload])
		if len(records) > 0 && bytes+size > limit.Bytes {
			break // Close discards the rest, which never was in memory at once; the next claim asks for fewer
		}
		bytes += size
		if len(block) == cap(block) {
			block = make([]outbox.Record, 0, 256) // blocks, because a grown slice would move the records under their pointers
		}
		block = block[:len(block)+1]
		rec := &block[len(block)-1]
		if err := s.decode(rec, raw, &payload); err != nil {
			return nil, fmt.Errorf("decode a row of %s: %w", s.layout.Table, err)
		}
		if held != nil && held(rec) {
			continue
		}
		records = append(records, rec)
	}
	rows.Close()
	s.claims.saw(len(records), bytes)
	if err := rows.Err(); err != nil {
		return records, fmt.Errorf("read %s: %w", s.layout.Table, timeLimit(ctx, err))
	}
	return records, nil
}

// timeLimit marks the end of a claim by the server's statement_timeout, so that the relay asks for less.
func timeLimit(ctx context.Context, err error) error {
	if code(err) == queryCanceled && ctx.Err() == nil {
		return errors.Join(context.DeadlineExceeded, err)
	}
	return err
}

// The columns of claim_row.sql.
const (
	colID = iota
	colPosition
	colLane
	colOrderKey
	colSequence
	colAttempts
	colGeneration
	colWrittenAt
	colOccurredAt
	colTopic
	colAggregateType
	colKey
	colTenant
	colSource
	colSchemaID
	colSchemaVersion
	colDestinations
	colDeliveredTo
	colMetadata
	colPayload
	colPlace
	claimColumns
)

// claimFormats asks for every column in binary, which for text is the text itself.
var claimFormats = func() pgx.QueryResultFormats {
	f := make(pgx.QueryResultFormats, claimColumns)
	for i := range f {
		f[i] = pgx.BinaryFormatCode
	}
	return f
}()

func (s *store) decode(rec *outbox.Record, raw [][]byte, payload *arena) error {
	if len(raw) != claimColumns || len(raw[colID]) != 16 {
		return fmt.Errorf("%d columns, event id of %d bytes: the statement and this program disagree", len(raw),
			len(raw[colID]))
	}
	copy(rec.ID[:], raw[colID])
	rec.Position = int64(binary.BigEndian.Uint64(raw[colPosition]))
	if k := raw[colOrderKey]; k != nil {
		rec.OrderKey, rec.Keyed = int64(binary.BigEndian.Uint64(k)), true
		rec.Lane = int16(rec.OrderKey & (outbox.Lanes - 1))
	}
	if l := raw[colLane]; l != nil {
		rec.Lane = int16(binary.BigEndian.Uint16(l))
	}
	rec.Sequence = int64(binary.BigEndian.Uint64(raw[colSequence]))
	rec.Attempts = int(int32(binary.BigEndian.Uint32(raw[colAttempts])))
	rec.Generation = int(int32(binary.BigEndian.Uint32(raw[colGeneration])))
	rec.Topic = s.intern.string(raw[colTopic])
	rec.AggregateType = s.intern.string(raw[colAggregateType])
	rec.AggregateID = string(raw[colKey])
	rec.TenantID = s.intern.string(raw[colTenant])
	rec.Source = s.intern.string(raw[colSource])
	if rec.Source == "" {
		rec.Source = s.layout.Table // CloudEvents requires a source
	}
	rec.SchemaID = s.intern.string(raw[colSchemaID])
	rec.SchemaVersion = int(int32(binary.BigEndian.Uint32(raw[colSchemaVersion])))
	rec.WrittenAt = decodeTime(raw[colWrittenAt])
	if rec.WrittenAt.IsZero() {
		rec.WrittenAt = uuid7.Time(rec.ID)
	}
	if rec.OccurredAt = decodeTime(raw[colOccurredAt]); raw[colOccurredAt] == nil {
		rec.OccurredAt = rec.WrittenAt
	}
	decodeDestinations(rec, raw)
	if m := raw[colMetadata]; m != nil {
		rec.RawMetadata = payload.keep(m)
	}
	if at := raw[colPlace]; len(at) == 8 { // a log's transaction
		rec.Place = binary.BigEndian.Uint64(at)
	} else if len(at) == 6 {
		rec.Place = uint64(binary.BigEndian.Uint32(at))<<16 | uint64(binary.BigEndian.Uint16(at[4:]))
	}
	if size := len(raw[colPayload]); size > s.maxPayload {
		rec.Defect = fmt.Sprintf("the payload is %d bytes as text, more than %d", size, s.maxPayload)
		return nil
	}
	rec.Payload = payload.keep(raw[colPayload])
	return nil
}

func decodeDestinations(rec *outbox.Record, raw [][]byte) {
	if d := raw[colDestinations]; d != nil {
		if err := json.Unmarshal(d, &rec.Destinations); err != nil {
			rec.Defect = "destinations are not a JSON array of strings"
		}
		for _, name := range rec.Destinations {
			if name == "" {
				rec.Defect = "destinations contain an empty name"
			}
		}
	}
	if d := raw[colDeliveredTo]; d != nil {
		if err := json.Unmarshal(d, &rec.DeliveredTo); err != nil {
			rec.DeliveredTo = nil // a wrong note costs a second copy, which the sink refuses
		}
	}
}

// decodeTime reads a binary timestamptz: microseconds since 2000-01-01 UTC. NULL and the infinities give zero.
func decodeTime(b []byte) time.Time {
	if len(b) != 8 {
		return time.Time{}
	}
	us := int64(binary.BigEndian.Uint64(b))
	if us == 1<<63-1 || us == -1<<63 {
		return time.Time{}
	}
	// In seconds, because the last years have no microseconds since 1970 in 64 bits.
	return time.Unix(946684800+us/1e6, us%1e6*1e3).UTC()
}

func splitLanes(lanes []outbox.Lane) (numbers []int16, epochs []int64) {
	numbers, epochs = make([]int16, len(lanes)), make([]int64, len(lanes))
	for i, l := range lanes {
		numbers[i], epochs[i] = l.Number, l.Epoch
	}
	return numbers, epochs
}

// laneBits is a set of lanes as a claim asks for it.
func laneBits(lanes []outbox.Lane) (bits int64) {
	for _, l := range lanes {
		bits |= bit(l.Number)
	}
	return bits
}

func bit(lane int16) int64 { return int64(uint64(1) << uint(lane)) }

// arena keeps copies of many small byte slices in few allocations. Slices given out stay valid: a full chunk is left to
// them.
type arena struct{ chunk []byte }

func (a *arena) keep(b []byte) []byte {
	if cap(a.chunk)-len(a.chunk) < len(b) {
		a.chunk = make([]byte, 0, max(64<<10, len(b)))
	}
	at := len(a.chunk)
	a.chunk = append(a.chunk, b...)
	return a.chunk[at:len(a.chunk):len(a.chunk)]
}
