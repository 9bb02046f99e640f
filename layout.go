package outbox

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"github.com/outboxrelay/outbox/internal/store/identifier"
)

// Layout says which columns of a table play which part. Fields are names of columns but for Table
// and what is marked otherwise; an empty one means that the table has no such column. Names are
// validated and quoted once, when the Store is opened. The keys are those of a file of layouts.
//
// The types below are PostgreSQL's. A column of another type is refused when the table is opened.
// Numbers are smallint, integer or bigint, times timestamptz or timestamp. A column without a type
// here takes any. SQLite looks at values; what a column was declared with matters only for
// position. There
//
//	uuid        is a text in any spelling of a UUID, or a blob of 16 bytes; app is the text that apps has, lower case
//	timestamp   is a text, UTC where it names no zone: written as 2006-01-02T15:04:05.000000Z, read also with a space
//	            for the T, with another number of digits or none, and with an offset (+02:00)
//	bigint      is an integer; position is the INTEGER PRIMARY KEY, or in a STRICT table an INTEGER that is NOT NULL
//	            and UNIQUE
//	json, jsonb is a text that is JSON, not a blob
//
// A row with a value that is none of these becomes a dead letter, and the others go on.
type Layout struct {
	// Table may be schema-qualified: "billing.outbox". On SQLite the schema is an attached
	// database.
	Table string `yaml:"table"`

	ID       string `yaml:"id"`       // uuid NOT NULL: the event id, the duplicate key at sinks (required)
	Position string `yaml:"position"` // bigint NOT NULL drawn by the database at insert, the order within a key (required)
	Topic    string `yaml:"topic"`    // what happened (required)
	Payload  string `yaml:"payload"`  // json or jsonb (required)

	Key      string   `yaml:"key"`       // what must stay in order, as consumers see it; empty: no row has a key
	KeyScope []string `yaml:"key_scope"` // columns within whose values Key means something: tenant, aggregate type

	// KeylessScope makes rows without a key a sequence: those with the same value in this column
	// are delivered one after another, and a failing one blocks the others until it is delivered or
	// dead. Empty: rows without a key have no order and are delivered in parallel. All relays and
	// groups of a table must agree on it.
	KeylessScope string `yaml:"keyless_scope"`

	AggregateType string `yaml:"aggregate_type"`
	Tenant        string `yaml:"tenant"` // a namespace of table apps
	App           string `yaml:"app"`    // uuid: an id of table apps, instead of Tenant
	Source        string `yaml:"source"`
	SchemaID      string `yaml:"schema_id"`
	SchemaVersion string `yaml:"schema_version"` // integer
	Destinations  string `yaml:"destinations"`   // json or jsonb: null or an array of strings
	Metadata      string `yaml:"metadata"`       // json or jsonb

	// Sequence is a bigint: the number within the key that consumers see, instead of Position. A
	// row without one has none.
	Sequence   string `yaml:"sequence"`
	OccurredAt string `yaml:"occurred_at"` // timestamptz
	WrittenAt  string `yaml:"written_at"`  // timestamptz
	TimeID     string `yaml:"time_id"`     // uuid: where there is no WrittenAt, the column whose UUIDv7 tells it (ID)
	Generation string `yaml:"generation"`  // smallint or integer: how often the row was replayed

	// State: either a status column with its values, or a timestamp that is null until delivery, or
	// both.
	Status      string `yaml:"status"`
	Pending     string `yaml:"pending"`      // value of Status
	Retrying    string `yaml:"retrying"`     // value of Status while a retry is due; empty: Pending
	Delivered   string `yaml:"delivered"`    // value of Status
	Dead        string `yaml:"dead"`         // value of Status; empty: a dead row leaves the table
	DeliveredAt string `yaml:"delivered_at"` // timestamp set at delivery

	Attempts     string `yaml:"attempts"`      // integer: failed attempts so far (required)
	NextRetryAt  string `yaml:"next_retry_at"` // timestamptz, null unless a retry waits (required)
	LastError    string `yaml:"last_error"`    // text
	ErrorHistory string `yaml:"error_history"` // jsonb: array of {error, timestamp}
	DeliveredTo  string `yaml:"delivered_to"`  // jsonb: destinations served while others are retried

	// Settle is what becomes of a row that every destination has (SettleMark). One that waits for a
	// retry or is dead stays whatever this is.
	Settle SettleMode `yaml:"settle"`

	// Transaction is an xid8 that each row has from pg_current_xact_id(): with it the table is a
	// log. Its rows are only inserted: what is delivered is known by positions, and what failed is
	// in outbox_deliveries. So it has no columns of state. Only PostgreSQL has such tables.
	Transaction string `yaml:"-"`
	// Reader is the name of the consumer group that reads the table; empty: relays read it for
	// their sinks. Each reader of a log has positions and leases of its own, and gets all events.
	// Another table has one reader, which the database records: see ReaderError. Package
	// inbox/group sets this field.
	Reader string `yaml:"-"`

	// Part is a column by which several outboxes share the table, and PartValue what it holds in
	// the rows of this one. Of is the table whose events these are, for sinks' duplicate keys. They
	// are DeliveriesOf's.
	Part      string `yaml:"-"`
	PartValue string `yaml:"-"`
	Of        string `yaml:"-"`
}

// SettleMode is what becomes of a delivered row. Relays of one table may differ in it: each settles
// its own rows.
type SettleMode string

// The settle modes.
const (
	SettleMark    SettleMode = "mark"    // it stays, marked as delivered, until retention removes it
	SettleDelete  SettleMode = "delete"  // it is deleted
	SettleArchive SettleMode = "archive" // it moves to outbox_archive, marked as delivered
)

// check says what is wrong with a mode. "" is none of the three and right: it is SettleMark.
func (m SettleMode) check() error {
	switch m {
	case "", SettleMark, SettleDelete, SettleArchive:
		return nil
	}
	return fmt.Errorf("%q is no settle mode: it is %s, %s or %s", string(m), SettleMark, SettleDelete, SettleArchive)
}

// Removes tells whether a delivered row leaves its table at once.
func (m SettleMode) Removes() bool { return m == SettleDelete || m == SettleArchive }

// OutboxEvents is the table outbox_events (docs/seeds.md, ADR-004).
func OutboxEvents() Layout {
	return Layout{
		Table: "outbox_events",
		ID:    "id", Position: "position", Topic: "event_topic", Payload: "payload",
		Key: "aggregate_id", KeyScope: []string{"tenant_id", "aggregate_type"},
		AggregateType: "aggregate_type", Tenant: "tenant_id", Source: "source_bc",
		SchemaID: "schema_id", SchemaVersion: "schema_version",
		Destinations: "destination_topics", Metadata: "metadata",
		OccurredAt: "occurred_at", WrittenAt: "created_at", Generation: "generation",
		Status: "status", Pending: "NEW", Retrying: "FAILED", Delivered: "SENT", Dead: "DEAD",
		DeliveredAt: "processed_at",
		Attempts:    "retry_count", NextRetryAt: "next_retry_at", LastError: "error_message",
		ErrorHistory: "error_history", DeliveredTo: "delivered_to",
	}
}

// EventOutbox is the table event_outbox (docs/seeds.md, 05-01). Its time is read from the rows'
// UUIDv7. Rows without a key, as the seed writes them, are one sequence per application: first in,
// first out. To handle them in parallel, set KeylessScope to "".
func EventOutbox() Layout {
	return Layout{
		Table: "event_outbox",
		ID:    "event_id", Position: "position", Topic: "event_type", Payload: "payload",
		Key: "event_key", KeyScope: []string{"app_id"}, KeylessScope: "app_id",
		TimeID: "id", App: "app_id", Generation: "generation",
		Status: "status", Pending: "pending", Delivered: "published", Dead: "failed", DeliveredAt: "published_at",
		Attempts: "retry_count", NextRetryAt: "next_retry_at", LastError: "error_message",
		ErrorHistory: "error_history", DeliveredTo: "delivered_to",
	}
}

// CrawlOutbox is the table crawl_outbox (docs/seeds.md, FR-007), which FR-005 calls run_outbox. A
// dead row leaves it: the log, crawl_events, keeps the event. What FR-005 asks of its relay besides
// is relay.Config's: Destination run:{key}, and MaxAttempts 3.
func CrawlOutbox() Layout {
	return Layout{
		Table: "crawl_outbox",
		ID:    "event_id", Position: "id", Topic: "event_type", Payload: "payload",
		Key: "crawl_id", KeyScope: []string{"tenant_id"}, // a run has one tenant; the scope says so, and claims can be shared
		Tenant: "tenant_id", Sequence: "seq",
		OccurredAt: "created_at", WrittenAt: "created_at", Generation: "generation",
		DeliveredAt: "published_at",
		Attempts:    "retry_count", NextRetryAt: "next_retry_at", LastError: "error_message",
		ErrorHistory: "error_history", DeliveredTo: "delivered_to",
	}
}

// OutboxLog is the table outbox_log, which the migration set log makes: the columns of
// outbox_events without those of state.
func OutboxLog() Layout {
	return Layout{
		Table: "outbox_log",
		ID:    "id", Position: "position", Topic: "event_topic", Payload: "payload",
		Key: "aggregate_id", KeyScope: []string{"tenant_id", "aggregate_type"},
		AggregateType: "aggregate_type", Tenant: "tenant_id", Source: "source_bc",
		SchemaID: "schema_id", SchemaVersion: "schema_version",
		Destinations: "destination_topics", Metadata: "metadata",
		OccurredAt: "occurred_at", WrittenAt: "created_at", Generation: "generation",
		Transaction: "xid",
	}
}

// KeepsState tells whether a row says itself what has become of it. The rows of a log do not: they
// are only inserted.
func (l Layout) KeepsState() bool { return l.Transaction == "" }

// Validate reports every problem of the layout at once.
func (l Layout) Validate() error {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	required := []struct{ field, value string }{
		{"table", l.Table}, {"id", l.ID}, {"position", l.Position}, {"topic", l.Topic}, {"payload", l.Payload},
		{"attempts", l.Attempts}, {"next_retry_at", l.NextRetryAt},
	}
	if !l.KeepsState() {
		required = required[:5]
		l.validateLog(add)
	} else if l.Status == "" && l.DeliveredAt == "" {
		add("status, delivered_at: one of them is required, it tells what is delivered")
	}
	for _, r := range required {
		if r.value == "" {
			add("%s: is required", r.field)
		}
	}
	l.validateTogether(add)
	for name, column := range l.Columns() {
		if err := identifier.Check(column); err != nil {
			add("%s: %w", name, err)
		}
	}
	if err := identifier.CheckTable(l.Table); err != nil && l.Table != "" {
		add("table: %w", err)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("layout of table %q: %w", l.Table, err)
	}
	return nil
}

// validateTogether reports what does not go together.
func (l Layout) validateTogether(add func(format string, args ...any)) {
	if l.Status != "" && (l.Pending == "" || l.Delivered == "" || l.Dead == "") {
		add("pending, delivered, dead: are required with status, they are its values")
	}
	if l.Status == "" && (l.Pending != "" || l.Retrying != "" || l.Delivered != "" || l.Dead != "") {
		add("pending, retrying, delivered, dead: are values of status, which is not set")
	}
	if err := l.Settle.check(); err != nil {
		add("settle: %w", err)
	}
	if l.Key == "" && len(l.KeyScope) > 0 {
		add("key_scope: needs key")
	}
	if l.Tenant != "" && l.App != "" {
		add("tenant, app: only one of them can name the owner")
	}
}

// validateLog reports what no log has.
func (l Layout) validateLog(add func(format string, args ...any)) {
	if l.Settle != "" {
		add("settle: %s is a log, whose rows stay as they are until their part is truncated: leave it out", l.Table)
	}
	if l.Status+l.DeliveredAt+l.Attempts+l.NextRetryAt+l.LastError+l.ErrorHistory+l.DeliveredTo != "" {
		add("transaction: %s is a log, whose rows are never changed: leave out status, delivered_at, attempts, "+
			"next_retry_at, last_error, error_history and delivered_to", l.Table)
	}
	if l.WrittenAt == "" {
		add("written_at: is required")
	}
}

// parts are the layout's texts by the names of their keys in a file of layouts, values of Status
// among them.
func (l *Layout) parts() iter.Seq2[string, *string] {
	return func(yield func(string, *string) bool) {
		v := reflect.ValueOf(l).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Tag.Get("yaml")
			if text, ok := v.Field(i).Addr().Interface().(*string); ok && name != "-" && !yield(name, text) {
				return
			}
		}
	}
}

// statusValues are the parts that are values of Status and no columns.
var statusValues = map[string]bool{"pending": true, "retrying": true, "delivered": true, "dead": true}

// Columns returns the layout's columns by the name of their part.
func (l Layout) Columns() map[string]string {
	m := map[string]string{}
	for name, text := range l.parts() {
		if *text != "" && name != "table" && !statusValues[name] {
			m[name] = *text
		}
	}
	for i, column := range l.KeyScope {
		m[fmt.Sprintf("key_scope[%d]", i)] = column
	}
	return m
}

// Quoted returns the layout as a store writes it into statements: the table, the columns there are
// and the values of Status quoted, Retrying filled in.
func (l Layout) Quoted(table, column, value func(string) string) Layout {
	if l.Retrying == "" {
		l.Retrying = l.Pending
	}
	for name, text := range l.parts() {
		switch {
		case name == "table":
			*text = table(*text)
		case statusValues[name]:
			*text = value(*text)
		case *text != "":
			*text = column(*text)
		}
	}
	if !l.KeepsState() {
		l.Transaction = column(l.Transaction)
	}
	if l.Part != "" {
		l.Part, l.PartValue = column(l.Part), value(l.PartValue)
	}
	l.KeyScope = slices.Clone(l.KeyScope)
	for i, c := range l.KeyScope {
		l.KeyScope[i] = column(c)
	}
	return l
}
