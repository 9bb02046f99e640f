package sqlite

import (
	"encoding/json"
	"time"

	"github.com/outboxrelay/outbox/tables"
)

// browsedRow is a row as browse_columns gives it: what is in it is shown, whatever type a mapped table has it in.
type browsedRow struct {
	id                                                text
	position                                          int64
	status, topic, key, aggregateType, tenant, source text
	writtenAt, deliveredAt                            text
	attempts                                          number
	nextRetryAt, lastError, destinations              text
}

func (r *browsedRow) columns() []any {
	return []any{
		&r.id, &r.position, &r.status, &r.topic, &r.key, &r.aggregateType, &r.tenant, &r.source, &r.writtenAt,
		&r.deliveredAt, &r.attempts, &r.nextRetryAt, &r.lastError, &r.destinations,
	}
}

func (r *browsedRow) row() tables.EventRow {
	id, _ := parseID(r.id)
	row := tables.EventRow{
		ID: id, Position: r.position, Status: r.status.s, Topic: r.topic.s, Key: r.key.pointer(),
		AggregateType: r.aggregateType.pointer(), Tenant: r.tenant.pointer(), Source: r.source.pointer(),
		WrittenAt: r.writtenAt.timeOfID().moment(), DeliveredAt: r.deliveredAt.moment(), Attempts: int(r.attempts.n),
		NextRetryAt: r.nextRetryAt.moment(), LastError: r.lastError.pointer(),
		Destinations: r.destinations.json(),
	}
	row.DateByID()
	return row
}

// browsedDetail is a row as browse_show.sql gives it.
type browsedDetail struct {
	browsedRow
	occurredAt, schemaID, schemaVersion text
	lane                                int
	sequence                            text
	generation                          number
	deliveredTo, history, meta, payload text
}

func (r *browsedDetail) columns() []any {
	return append(r.browsedRow.columns(), &r.occurredAt, &r.schemaID, &r.schemaVersion, &r.lane, &r.sequence,
		&r.generation, &r.deliveredTo, &r.history, &r.meta, &r.payload)
}

func (r *browsedDetail) detail() tables.EventDetail {
	d := tables.EventDetail{
		EventRow: r.row(), OccurredAt: r.occurredAt.moment(), SchemaID: r.schemaID.pointer(), Lane: r.lane,
		Sequence: integer[int64](r.sequence), SchemaVersion: integer[int](r.schemaVersion),
		Generation: int(r.generation.n), DeliveredTo: r.deliveredTo.json(), ErrorHistory: r.history.json(),
		Metadata: r.meta.json(), Payload: r.payload.json(),
	}
	if d.Payload == nil {
		d.Payload = json.RawMessage("null")
	}
	return d
}

func (t text) pointer() *string {
	if t.null {
		return nil
	}
	return &t.s
}

// moment is nil where there is no time.
func (t text) moment() *time.Time {
	at, err := parseTime(t.s)
	if err != nil {
		return nil
	}
	return &at
}

func integer[T int | int64](t text) *T {
	var n T
	if t.null || json.Unmarshal([]byte(t.s), &n) != nil {
		return nil
	}
	return &n
}

// json is the text itself where it is JSON, and else the text as a JSON string: a mapped table may hold anything, and
// people look at it to find out what.
func (t text) json() json.RawMessage {
	if t.null {
		return nil
	}
	if json.Valid([]byte(t.s)) {
		return json.RawMessage(t.s)
	}
	quoted, err := json.Marshal(t.s)
	if err != nil {
		return nil // no string fails
	}
	return quoted
}
