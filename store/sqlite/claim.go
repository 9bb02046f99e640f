package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// Claim implements outbox.Store.
func (s *store) Claim(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) (records []*outbox.Record, err error) {
	if limit.Fair && limit.HeldBack() == nil && s.fair.claim.text != "" && len(lanes) > 0 {
		records, err = s.claimFair(ctx, lanes, limit)
	} else {
		records, err = s.claimOldest(ctx, nil, laneBits(lanes), stamp(time.Now()), limit)
	}
	if moved := s.db.inPlace(); moved != nil { // then what was read may be of no time at all
		err = moved
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.layout.Table, whole(err))
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
	if len(limit.WithoutKeys)+len(limit.WithoutEvents) > 0 || limit.HeldBack() != nil {
		ask = -1 // no limit: what is left out may be more than that, and is passed over row by row
	}
	records, _, err := s.read(ctx, stmt, limit, lanes, now, ask)
	return records, err
}

// read runs a claim, and returns its records and the bytes of their payloads, within limit. Rows
// are read as they are asked for, so that what does not fit costs nothing.
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
		size := len(row.payload.S)
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
	id                                  sqltable.Text
	position, lane                      int64
	orderKey                            sqltable.Text
	sequence, attempts, generation      sqltable.Number
	writtenAt, occurredAt               sqltable.Text
	topic, aggregateType, key, tenant   sqltable.Text
	app, source                         sqltable.Text
	schemaID                            sqltable.Text
	schemaVersion                       sqltable.Number
	destinations, deliveredTo, metadata sqltable.Text
	payload                             sqltable.Text
}

func (r *claimedRow) columns() []any {
	return []any{
		&r.id, &r.position, &r.lane, &r.orderKey, &r.sequence, &r.attempts, &r.generation, &r.writtenAt, &r.occurredAt,
		&r.topic, &r.aggregateType, &r.key, &r.tenant, &r.app, &r.source,
		&r.schemaID, &r.schemaVersion, &r.destinations, &r.deliveredTo, &r.metadata, &r.payload,
	}
}

// decode makes a record of a row. What cannot be used is its Defect: it costs its own key a dead
// letter and the others nothing.
func (s *store) decode(rec *outbox.Record, row *claimedRow) {
	defect := func(format string, args ...any) {
		if rec.Defect == "" {
			rec.Defect = fmt.Sprintf(format, args...)
		}
	}
	integer := func(name string, n sqltable.Number, lowest, highest int64) int64 {
		if n.Bad || n.N < lowest || n.N > highest {
			defect("the %s is no integer from %d to %d", name, lowest, highest)
			return max(lowest, 0)
		}
		return n.N
	}
	moment := func(name string, t sqltable.Text) (at time.Time) {
		if t.Null {
			return at
		}
		at, err := parseTime(t.S)
		if err != nil || t.Bytes {
			defect("%s is no time of the form %s", name, sqlitetime.Form)
		}
		return at
	}
	const most = 1<<31 - 1
	var known bool
	if rec.ID, known = sqltable.ParseID(row.id); !known {
		defect("the id is no UUID")
	}
	rec.Position, rec.Lane = row.position, int16(row.lane)
	if !row.orderKey.Null {
		rec.OrderKey, rec.Keyed = hashKey(row.orderKey.S), true
	}
	for name, t := range map[string]*sqltable.Text{"topic": &row.topic, "aggregate type": &row.aggregateType,
		"key": &row.key, "tenant": &row.tenant, "source": &row.source, "schema id": &row.schemaID,
		"metadata": &row.metadata} {
		if !utf8.ValidString(t.S) {
			t.S = strings.ToValidUTF8(t.S, "\uFFFD")
			defect("the %s is not valid UTF-8", name)
		}
	}
	rec.Sequence = integer("sequence", row.sequence, -1<<63, 1<<63-1)
	rec.Attempts = int(integer("number of attempts", row.attempts, 0, most))
	rec.Generation = int(integer("generation", row.generation, 0, most))
	rec.Topic = row.topic.S
	rec.AggregateType = row.aggregateType.S
	rec.AggregateID = row.key.S
	rec.TenantID = row.tenant.S
	if app, known := sqltable.ParseID(row.app); known {
		rec.AppID = app
	}
	if rec.Source = row.source.S; rec.Source == "" {
		rec.Source = s.layout.Table // CloudEvents requires a source
	}
	rec.SchemaID = row.schemaID.S
	rec.SchemaVersion = int(integer("schema version", row.schemaVersion, 0, most))
	if rec.WrittenAt = moment("the time of writing", row.writtenAt.TimeOfID()); rec.WrittenAt.IsZero() {
		rec.WrittenAt = uuid7.Time(rec.ID)
	}
	if rec.OccurredAt = moment("the time of the event", row.occurredAt); rec.OccurredAt.IsZero() {
		rec.OccurredAt = rec.WrittenAt
	}
	s.decodeJSON(rec, row, defect)
}

// decodeJSON takes over what a row has as JSON.
func (s *store) decodeJSON(rec *outbox.Record, row *claimedRow, defect func(format string, args ...any)) {
	if d := row.destinations; !d.Null {
		if err := json.Unmarshal([]byte(d.S), &rec.Destinations); err != nil {
			rec.Destinations = nil
			defect("destinations are not a JSON array of strings")
		}
		for _, name := range rec.Destinations {
			if name == "" {
				defect("destinations contain an empty name")
			}
		}
	}
	if d := row.deliveredTo; !d.Null {
		if err := json.Unmarshal([]byte(d.S), &rec.DeliveredTo); err != nil {
			rec.DeliveredTo = nil // a wrong note costs a second copy, which the sink refuses
		}
	}
	if m := row.metadata; !m.Null {
		if rec.RawMetadata = json.RawMessage(m.S); !s.trusted && !json.Valid(rec.RawMetadata) {
			rec.RawMetadata = nil
			defect("the metadata is no JSON")
		}
	}
	payload := json.RawMessage(row.payload.S)
	switch {
	case len(payload) > s.maxPayload:
		defect("the payload is %d bytes, more than %d", len(payload), s.maxPayload)
	case row.payload.Bytes:
		defect("the payload is a BLOB, not a text")
	case !utf8.Valid(payload):
		defect("the payload is not valid UTF-8")
	case !s.trusted && !json.Valid(payload):
		defect("the payload is no JSON")
	default:
		rec.Payload = payload
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
