package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sqlitetime"
)

// Claim implements outbox.EventStore.
func (s *store) Claim(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) (records []*outbox.Record, err error) {
	if limit.Fair && !limit.Paused.Parts() && s.fair.claim.text != "" && len(lanes) > 0 {
		records, err = s.claimFair(ctx, lanes, limit)
	} else {
		records, err = s.claimOldest(ctx, nil, laneBits(lanes), stamp(time.Now()), limit)
	}
	if moved := s.db.inPlace(); moved != nil { // then what was read may be of no time at all
		err = moved
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.layout.Table, explain(err))
	}
	return records, nil
}

// claimOldest claims without regard to whose rows they are, within a transaction if there is one.
func (s *store) claimOldest(
	ctx context.Context, tx *sql.Tx, lanes int64, now string, limit outbox.ClaimLimit,
) ([]*outbox.Record, error) {
	stmt, err := s.sql.claim.on(ctx, s.db.read)
	if err != nil {
		return nil, err
	}
	if tx != nil {
		stmt = tx.StmtContext(ctx, stmt)
	}
	ask := limit.Records
	if len(limit.WithoutKeys)+len(limit.WithoutEvents) > 0 || limit.Paused.Parts() {
		ask = -1 // no limit: what is left out may be more than that, and is passed over row by row
	}
	records, _, err := s.read(ctx, stmt, limit, lanes, now, ask)
	return records, err
}

// read runs a claim, and returns its records and the bytes of their payloads, within limit. Rows are read as they are
// asked for, so that what does not fit costs nothing.
func (s *store) read(
	ctx context.Context, stmt *sql.Stmt, limit outbox.ClaimLimit, args ...any,
) (records []*outbox.Record, bytes int, err error) {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	heldKeys, heldEvents := setOf(limit.WithoutKeys), setOf(limit.WithoutEvents)
	paused := limit.HeldBack()
	var row claimedRow
	columns := row.columns()
	for rows.Next() {
		if err := rows.Scan(columns...); err != nil {
			return nil, 0, err
		}
		size := len(row.payload.s)
		if len(records) == limit.Records || len(records) > 0 && bytes+size > limit.Bytes {
			break
		}
		rec := new(outbox.Record)
		s.decode(rec, &row)
		if rec.Keyed && heldKeys[rec.OrderKey] || heldEvents[rec.ID] || paused != nil && paused(rec) {
			continue
		}
		bytes += size
		records = append(records, rec)
	}
	return records, bytes, rows.Err()
}

func setOf[T comparable](list []T) map[T]bool {
	if len(list) == 0 {
		return nil
	}
	set := make(map[T]bool, len(list))
	for _, v := range list {
		set[v] = true
	}
	return set
}

// claimedRow is a row of claim_row.sql as it is stored.
type claimedRow struct {
	id                                        text
	position, lane                            int64
	orderKey                                  text
	sequence, attempts, generation            number
	writtenAt, occurredAt                     text
	topic, aggregateType, key, tenant, source text
	schemaID                                  text
	schemaVersion                             number
	destinations, deliveredTo, metadata       text
	payload                                   text
}

func (r *claimedRow) columns() []any {
	return []any{
		&r.id, &r.position, &r.lane, &r.orderKey, &r.sequence, &r.attempts, &r.generation, &r.writtenAt, &r.occurredAt,
		&r.topic, &r.aggregateType, &r.key, &r.tenant, &r.source,
		&r.schemaID, &r.schemaVersion, &r.destinations, &r.deliveredTo, &r.metadata, &r.payload,
	}
}

// text takes a column's value of whatever type, as text. bytes says that it was a BLOB.
type text struct {
	s           string
	null, bytes bool
}

// Scan implements sql.Scanner.
func (t *text) Scan(v any) error {
	*t = text{}
	switch v := v.(type) {
	case nil:
		t.null = true
	case string:
		t.s = v
	case []byte:
		t.s, t.bytes = string(v), true
	case int64:
		t.s = strconv.FormatInt(v, 10)
	case float64:
		t.s = strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time: // the driver's own idea of a column declared as one
		t.s = stamp(v)
	default:
		t.s = fmt.Sprint(v)
	}
	return nil
}

// number takes a column's value of whatever type; bad says that it is no integer.
type number struct {
	n   int64
	bad bool
}

// Scan implements sql.Scanner.
func (n *number) Scan(v any) error {
	*n = number{}
	switch v := v.(type) {
	case nil:
	case int64:
		n.n = v
	default:
		n.bad = true
	}
	return nil
}

// decode makes a record of a row. What cannot be used is its Defect: it costs its own key a dead letter and the others
// nothing.
func (s *store) decode(rec *outbox.Record, row *claimedRow) {
	defect := func(format string, args ...any) {
		if rec.Defect == "" {
			rec.Defect = fmt.Sprintf(format, args...)
		}
	}
	integer := func(name string, n number, lowest, highest int64) int64 {
		if n.bad || n.n < lowest || n.n > highest {
			defect("the %s is no integer from %d to %d", name, lowest, highest)
			return max(lowest, 0)
		}
		return n.n
	}
	moment := func(name string, t text) (at time.Time) {
		if t.null {
			return at
		}
		at, err := parseTime(t.s)
		if err != nil || t.bytes {
			defect("%s is no time of the form %s", name, sqlitetime.Form)
		}
		return at
	}
	const most = 1<<31 - 1
	var known bool
	if rec.ID, known = parseID(row.id); !known {
		defect("the id is no UUID")
	}
	rec.Position, rec.Lane = row.position, int16(row.lane)
	if !row.orderKey.null {
		rec.OrderKey, rec.Keyed = hashKey(row.orderKey.s), true
	}
	rec.Sequence = integer("sequence", row.sequence, -1<<63, 1<<63-1)
	rec.Attempts = int(integer("number of attempts", row.attempts, 0, most))
	rec.Generation = int(integer("generation", row.generation, 0, most))
	rec.Topic = row.topic.s
	rec.AggregateType = row.aggregateType.s
	rec.AggregateID = row.key.s
	rec.TenantID = row.tenant.s
	if rec.Source = row.source.s; rec.Source == "" {
		rec.Source = s.layout.Table // CloudEvents requires a source
	}
	rec.SchemaID = row.schemaID.s
	rec.SchemaVersion = int(integer("schema version", row.schemaVersion, 0, most))
	if rec.WrittenAt = moment("the time of writing", row.writtenAt.timeOfID()); rec.WrittenAt.IsZero() {
		rec.WrittenAt = outbox.TimeOfID(rec.ID)
	}
	if rec.OccurredAt = moment("the time of the event", row.occurredAt); rec.OccurredAt.IsZero() {
		rec.OccurredAt = rec.WrittenAt
	}
	if d := row.destinations; !d.null {
		if err := json.Unmarshal([]byte(d.s), &rec.Destinations); err != nil {
			rec.Destinations = nil
			defect("destinations are not a JSON array of strings")
		}
		for _, name := range rec.Destinations {
			if name == "" {
				defect("destinations contain an empty name")
			}
		}
	}
	if d := row.deliveredTo; !d.null {
		if err := json.Unmarshal([]byte(d.s), &rec.DeliveredTo); err != nil {
			rec.DeliveredTo = nil // a wrong note costs a second copy, which the sink refuses
		}
	}
	if m := row.metadata; !m.null {
		if rec.RawMetadata = json.RawMessage(m.s); !s.trusted && !json.Valid(rec.RawMetadata) {
			rec.RawMetadata = nil
			defect("the metadata is no JSON")
		}
	}
	payload := json.RawMessage(row.payload.s)
	switch {
	case len(payload) > s.maxPayload:
		defect("the payload is %d bytes, more than %d", len(payload), s.maxPayload)
	case row.payload.bytes:
		defect("the payload is a BLOB, not a text")
	case !utf8.Valid(payload):
		defect("the payload is not valid UTF-8")
	case !s.trusted && !json.Valid(payload):
		defect("the payload is no JSON")
	default:
		rec.Payload = payload
	}
}

// parseID reads an id in any of its forms, 16 bytes included. Of what is no UUID it makes one, always the same, so that
// the row can become a dead letter.
func parseID(t text) (id uuid.UUID, known bool) {
	if t.bytes && len(t.s) == 16 {
		copy(id[:], t.s)
		return id, true
	}
	id, err := uuid.Parse(t.s)
	if err != nil {
		return uuid.NewSHA1(uuid.NameSpaceOID, []byte(t.s)), false
	}
	return id, true
}

// timeOfID returns the time in a UUIDv7 as it would be stored, nothing for another UUID, and what is no UUID as it is:
// a table says when its rows were written by one or the other.
func (t text) timeOfID() text {
	id, ok := parseID(t)
	switch at := outbox.TimeOfID(id); {
	case t.null || !ok:
		return t
	case at.IsZero():
		return text{null: true}
	default:
		return text{s: stamp(at)}
	}
}

// hashKey is FNV-1a. Two keys that share a hash merely wait for each other after a failure.
func hashKey(key string) int64 {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return int64(h)
}

// laneBits is a set of lanes as the statements ask for it.
func laneBits(lanes []outbox.Lane) (bits int64) {
	for _, l := range lanes {
		bits |= 1 << l.Number
	}
	return bits
}
