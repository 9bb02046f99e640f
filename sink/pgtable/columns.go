package pgtable

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// columns are rows of one table, column by column.
type columns struct {
	insert     string
	deliveries []int // their indexes in the batch
	inserted   map[identity]bool

	id, topic, aggregateType, aggregateID, tenant, source, schema, occurred, payload, metadata []string
	origin, sequence                                                                           []int64
	generation, schemaVersion                                                                  []int32
}

// newColumns returns columns without rows. None is nil: that would be NULL, and no array.
func newColumns(insert string) *columns {
	return &columns{insert: insert, id: []string{}, topic: []string{}, aggregateType: []string{}, aggregateID: []string{},
		tenant: []string{}, source: []string{}, schema: []string{}, occurred: []string{}, payload: []string{},
		metadata: []string{}, origin: []int64{}, sequence: []int64{}, generation: []int32{}, schemaVersion: []int32{}}
}

func (c *columns) add(i int, d *outbox.Delivery) {
	c.deliveries = append(c.deliveries, i)
	c.id = append(c.id, d.ID.String())
	c.origin = append(c.origin, int64(d.Origin))
	c.generation = append(c.generation, int32(d.Generation))
	c.topic = append(c.topic, d.Topic)
	c.aggregateType = append(c.aggregateType, d.AggregateType)
	c.aggregateID = append(c.aggregateID, d.AggregateID)
	c.tenant = append(c.tenant, d.TenantID)
	c.source = append(c.source, d.Source)
	c.schema = append(c.schema, d.SchemaID)
	c.schemaVersion = append(c.schemaVersion, int32(d.SchemaVersion))
	c.sequence = append(c.sequence, max(0, d.Sequence))
	c.occurred = append(c.occurred, timeText(d.OccurredAt.UTC()))
	c.payload = append(c.payload, string(d.Payload))
	c.metadata = append(c.metadata, metadataText(d.RawMetadata))
}

// arguments are those of insert.sql.
func (c *columns) arguments() []any {
	return []any{c.id, c.origin, c.generation, c.topic, c.aggregateType, c.aggregateID, c.tenant, c.source, c.schema,
		c.schemaVersion, c.sequence, c.occurred, c.payload, c.metadata}
}

// timeText is a time as PostgreSQL reads it, "" for none and for one that RFC 3339 cannot write.
func timeText(at time.Time) string {
	if at.IsZero() || at.Year() < 1 || at.Year() > 9999 {
		return ""
	}
	return at.Format(time.RFC3339Nano)
}

// metadataText is the metadata as JSON. Plain SQL may have written anything into a column of text:
// what is no JSON is a JSON string.
func metadataText(metadata json.RawMessage) string {
	text := string(bytes.TrimSpace(metadata))
	if text == "" || json.Valid(metadata) {
		return text
	}
	quoted, err := json.Marshal(strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return "" // a text always marshals
	}
	return string(quoted)
}
