package sqliteoperate

import (
	"encoding/json"

	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// browsedRow is a row as browse_columns gives it: what is in it is shown, whatever type a mapped table has it in.
type browsedRow struct {
	id                                                sqltable.Text
	position                                          int64
	status, topic, key, aggregateType, tenant, source sqltable.Text
	writtenAt, deliveredAt                            sqltable.Text
	attempts                                          sqltable.Number
	nextRetryAt, lastError, destinations              sqltable.Text
}

func (r *browsedRow) columns() []any {
	return []any{
		&r.id, &r.position, &r.status, &r.topic, &r.key, &r.aggregateType, &r.tenant, &r.source, &r.writtenAt,
		&r.deliveredAt, &r.attempts, &r.nextRetryAt, &r.lastError, &r.destinations,
	}
}

func (r *browsedRow) row() operate.EventRow {
	id, _ := sqltable.ParseID(r.id)
	row := operate.EventRow{
		ID: id, Position: r.position, Status: r.status.S, Topic: r.topic.S, Key: r.key.Pointer(),
		AggregateType: r.aggregateType.Pointer(), Tenant: r.tenant.Pointer(), Source: r.source.Pointer(),
		WrittenAt: r.writtenAt.TimeOfID().Moment(), DeliveredAt: r.deliveredAt.Moment(), Attempts: int(r.attempts.N),
		NextRetryAt: r.nextRetryAt.Moment(), LastError: r.lastError.Pointer(),
		Destinations: r.destinations.JSON(),
	}
	row.DateByID()
	return row
}

// browsedDetail is a row as browse_show.sql gives it.
type browsedDetail struct {
	browsedRow
	occurredAt, schemaID, schemaVersion sqltable.Text
	lane                                int
	sequence                            sqltable.Text
	generation                          sqltable.Number
	deliveredTo, history, meta, payload sqltable.Text
}

func (r *browsedDetail) columns() []any {
	return append(r.browsedRow.columns(), &r.occurredAt, &r.schemaID, &r.schemaVersion, &r.lane, &r.sequence,
		&r.generation, &r.deliveredTo, &r.history, &r.meta, &r.payload)
}

func (r *browsedDetail) detail() operate.EventDetail {
	d := operate.EventDetail{
		EventRow: r.row(), OccurredAt: r.occurredAt.Moment(), SchemaID: r.schemaID.Pointer(), Lane: r.lane,
		Sequence: sqltable.Integer[int64](r.sequence), SchemaVersion: sqltable.Integer[int](r.schemaVersion),
		Generation: int(r.generation.N), DeliveredTo: r.deliveredTo.JSON(), ErrorHistory: r.history.JSON(),
		Metadata: r.meta.JSON(), Payload: r.payload.JSON(),
	}
	if d.Payload == nil {
		d.Payload = json.RawMessage("null")
	}
	return d
}
