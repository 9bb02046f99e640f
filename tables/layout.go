package tables

import (
	"errors"
	"fmt"
	"strings"
)

// Layout says which columns of a table play which part. Fields are names of columns but for Table and what is marked
// otherwise; an empty one means that the table has no such column. Names are validated and quoted once, when the Store
// is opened.
//
// The types below are PostgreSQL's. SQLite looks at values; what a column was declared with matters only for position.
// There
//
//	uuid        is a text in any spelling of a UUID, or a blob of 16 bytes; app is the text that apps has, lower case
//	timestamp   is a text, UTC where it names no zone: written as 2006-01-02T15:04:05.000000Z, read also with a space for the T, with another number of digits or none,
//	            and with an offset (+02:00)
//	bigint      is an integer; position is the INTEGER PRIMARY KEY, or in a STRICT table an INTEGER that is NOT NULL and UNIQUE
//	json, jsonb is a text that is JSON, not a blob
//
// A row with a value that is none of these becomes a dead letter, and the others go on.
type Layout struct {
	Table string `koanf:"table"` // may be schema-qualified: "billing.outbox"; on SQLite the schema is an attached database

	ID       string `koanf:"id"`       // uuid NOT NULL: the event id, the duplicate key at sinks (required)
	Position string `koanf:"position"` // bigint (SQLite: INTEGER PRIMARY KEY) NOT NULL drawn by the database at insert, the order within a key (required)
	Topic    string `koanf:"topic"`    // what happened (required)
	Payload  string `koanf:"payload"`  // json or jsonb (required)

	Key      string   `koanf:"key"`       // what must stay in order, as consumers see it; empty: nothing is ordered
	KeyScope []string `koanf:"key_scope"` // columns within whose values Key means something: tenant, aggregate type

	// KeylessScope is a column within whose values rows without a key go out in their order, as long as none of them
	// fails. Empty: they go out side by side.
	KeylessScope string `koanf:"keyless_scope"`

	AggregateType string `koanf:"aggregate_type"`
	Tenant        string `koanf:"tenant"` // a namespace of table apps
	App           string `koanf:"app"`    // uuid: an id of table apps, instead of Tenant
	Source        string `koanf:"source"`
	SchemaID      string `koanf:"schema_id"`
	SchemaVersion string `koanf:"schema_version"`
	Destinations  string `koanf:"destinations"` // jsonb: null or an array of strings
	Metadata      string `koanf:"metadata"`
	Sequence      string `koanf:"sequence"` // bigint: number within the key that consumers see, instead of Position; a row without one has none
	OccurredAt    string `koanf:"occurred_at"`
	WrittenAt     string `koanf:"written_at"`
	TimeID        string `koanf:"time_id"`    // uuid: where there is no WrittenAt, the column whose UUIDv7 tells it (ID)
	Generation    string `koanf:"generation"` // smallint: how often the row was replayed

	// State: either a status column with its values, or a timestamp that is null until delivery, or both.
	Status      string `koanf:"status"`
	Pending     string `koanf:"pending"`      // value of Status
	Retrying    string `koanf:"retrying"`     // value of Status while a retry is due; empty: Pending
	Delivered   string `koanf:"delivered"`    // value of Status
	Dead        string `koanf:"dead"`         // value of Status; empty: a dead row leaves the table
	DeliveredAt string `koanf:"delivered_at"` // timestamp set at delivery

	Attempts     string `koanf:"attempts"`      // integer: failed attempts so far (required)
	NextRetryAt  string `koanf:"next_retry_at"` // timestamptz, null unless a retry waits (required)
	LastError    string `koanf:"last_error"`    // text
	ErrorHistory string `koanf:"error_history"` // jsonb: array of {error, timestamp}
	DeliveredTo  string `koanf:"delivered_to"`  // jsonb: destinations served while others are retried
}

// OutboxEvents is the table outbox_events of ADR-004.
func OutboxEvents() Layout {
	return Layout{
		Table: "outbox_events", ID: "id", Position: "position", Topic: "event_topic", Payload: "payload",
		Key: "aggregate_id", KeyScope: []string{"tenant_id", "aggregate_type"},
		AggregateType: "aggregate_type", Tenant: "tenant_id", Source: "source_bc", SchemaID: "schema_id", SchemaVersion: "schema_version",
		Destinations: "destination_topics", Metadata: "metadata", OccurredAt: "occurred_at", WrittenAt: "created_at", Generation: "generation",
		Status: "status", Pending: "NEW", Retrying: "FAILED", Delivered: "SENT", Dead: "DEAD", DeliveredAt: "processed_at",
		Attempts: "retry_count", NextRetryAt: "next_retry_at", LastError: "error_message", ErrorHistory: "error_history", DeliveredTo: "delivered_to",
	}
}

// EventOutbox is the table event_outbox (docs/seeds.md, 05-01). Its time is read from the rows' UUIDv7. Rows without a
// key, as the seed writes them, keep their order within an application: it is a FIFO.
func EventOutbox() Layout {
	return Layout{
		Table: "event_outbox", ID: "event_id", Position: "position", Topic: "event_type", Payload: "payload",
		Key: "event_key", KeyScope: []string{"app_id"}, KeylessScope: "app_id",
		TimeID: "id", App: "app_id", Generation: "generation",
		Status: "status", Pending: "pending", Delivered: "published", Dead: "failed", DeliveredAt: "published_at",
		Attempts: "retry_count", NextRetryAt: "next_retry_at", LastError: "error_message", ErrorHistory: "error_history", DeliveredTo: "delivered_to",
	}
}

// CrawlOutbox is the table crawl_outbox of FR-007, which FR-005 calls run_outbox. A dead row leaves it: the log,
// crawl_events, keeps the event. What FR-005 asks of its relay besides is RelayConfig's: Destination run:{key}, and
// MaxAttempts 3.
func CrawlOutbox() Layout {
	return Layout{
		Table: "crawl_outbox", ID: "event_id", Position: "id", Topic: "event_type", Payload: "payload",
		Key: "crawl_id", KeyScope: []string{"tenant_id"}, // a run has one tenant; the scope says so, and claims can be shared
		Tenant: "tenant_id", Sequence: "seq", OccurredAt: "created_at", WrittenAt: "created_at", Generation: "generation",
		DeliveredAt: "published_at",
		Attempts:    "retry_count", NextRetryAt: "next_retry_at", LastError: "error_message", ErrorHistory: "error_history", DeliveredTo: "delivered_to",
	}
}

// Validate reports every problem of the layout at once.
func (l Layout) Validate() error {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, r := range []struct{ field, value string }{
		{"table", l.Table}, {"id", l.ID}, {"position", l.Position}, {"topic", l.Topic}, {"payload", l.Payload},
		{"attempts", l.Attempts}, {"next_retry_at", l.NextRetryAt},
	} {
		if r.value == "" {
			add("%s: is required", r.field)
		}
	}
	if l.Status == "" && l.DeliveredAt == "" {
		add("status, delivered_at: one of them is required, it tells what is delivered")
	}
	if l.Status != "" && (l.Pending == "" || l.Delivered == "" || l.Dead == "") {
		add("pending, delivered, dead: are required with status, they are its values")
	}
	if l.Status == "" && (l.Pending != "" || l.Retrying != "" || l.Delivered != "" || l.Dead != "") {
		add("pending, retrying, delivered, dead: are values of status, which is not set")
	}
	if l.Key == "" && len(l.KeyScope) > 0 {
		add("key_scope: needs key")
	}
	if l.Tenant != "" && l.App != "" {
		add("tenant, app: only one of them can name the owner")
	}
	for name, column := range l.Columns() {
		if err := checkIdentifier(column); err != nil {
			add("%s: %w", name, err)
		}
	}
	if err := CheckName(l.Table); err != nil && l.Table != "" {
		add("table: %w", err)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("layout of table %q: %w", l.Table, err)
	}
	return nil
}

// Columns returns the layout's columns by the name of their part.
func (l Layout) Columns() map[string]string {
	m := map[string]string{}
	for name, column := range map[string]string{
		"id": l.ID, "position": l.Position, "topic": l.Topic, "payload": l.Payload, "key": l.Key, "keyless_scope": l.KeylessScope, "time_id": l.TimeID,
		"aggregate_type": l.AggregateType, "tenant": l.Tenant, "app": l.App, "source": l.Source, "schema_id": l.SchemaID,
		"schema_version": l.SchemaVersion, "destinations": l.Destinations, "metadata": l.Metadata, "sequence": l.Sequence,
		"occurred_at": l.OccurredAt, "written_at": l.WrittenAt, "generation": l.Generation, "status": l.Status, "delivered_at": l.DeliveredAt,
		"attempts": l.Attempts, "next_retry_at": l.NextRetryAt, "last_error": l.LastError, "error_history": l.ErrorHistory, "delivered_to": l.DeliveredTo,
	} {
		if column != "" {
			m[name] = column
		}
	}
	for i, column := range l.KeyScope {
		m[fmt.Sprintf("key_scope[%d]", i)] = column
	}
	return m
}

// CheckName refuses what can be no name of a table, alone or with a schema before it.
func CheckName(table string) error {
	parts := strings.Split(table, ".")
	if len(parts) > 2 {
		return fmt.Errorf("%q has more than a schema and a name", table)
	}
	for _, p := range parts {
		if err := checkIdentifier(p); err != nil {
			return err
		}
	}
	return nil
}

// checkIdentifier refuses what PostgreSQL would cut or cannot hold. Anything else is safe, because it is quoted.
func checkIdentifier(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > 63:
		return fmt.Errorf("%q is longer than PostgreSQL's 63 bytes for a name", s)
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("%q contains NUL", s)
	}
	return nil
}
