package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/identifier"
)

// commitLimit bounds a transaction. A stop does not interrupt one: its outcome would be unknown.
const commitLimit = 30 * time.Second

// fields are an event as people write it: by flags, or as a line of --jsonl.
type fields struct {
	Topic         string          `json:"topic"`
	Key           string          `json:"key"`
	AggregateType string          `json:"aggregate_type"`
	Tenant        string          `json:"tenant"`
	Source        string          `json:"source"`
	ID            string          `json:"id"`
	OccurredAt    string          `json:"occurred_at"`
	SchemaID      string          `json:"schema_id"`
	SchemaVersion int             `json:"schema_version"`
	Destinations  []string        `json:"destinations"`
	Metadata      json.RawMessage `json:"metadata"`
	Payload       json.RawMessage `json:"payload"`
}

// or returns the fields, and of all what they leave out.
func (f fields) or(all fields) fields {
	f.Topic, f.Key, f.AggregateType = cmp.Or(f.Topic, all.Topic), cmp.Or(f.Key, all.Key),
		cmp.Or(f.AggregateType, all.AggregateType)
	f.Tenant, f.Source = cmp.Or(f.Tenant, all.Tenant), cmp.Or(f.Source, all.Source)
	f.ID, f.OccurredAt = cmp.Or(f.ID, all.ID), cmp.Or(f.OccurredAt, all.OccurredAt)
	f.SchemaID, f.SchemaVersion = cmp.Or(f.SchemaID, all.SchemaID), cmp.Or(f.SchemaVersion, all.SchemaVersion)
	if len(f.Destinations) == 0 {
		f.Destinations = all.Destinations
	}
	if len(f.Metadata) == 0 || string(f.Metadata) == "null" {
		f.Metadata = all.Metadata
	}
	return f
}

// event is the event that they describe. What is wrong with a field is an *outbox.FieldError.
func (f fields) event() (e outbox.Event, err error) {
	e = outbox.Event{
		Topic: f.Topic, AggregateType: f.AggregateType, AggregateID: f.Key, TenantID: f.Tenant, Source: f.Source,
		SchemaID: f.SchemaID, SchemaVersion: f.SchemaVersion, Destinations: f.Destinations, Payload: f.Payload,
	}
	if f.ID != "" {
		if e.ID, err = uuid.Parse(f.ID); err != nil {
			return e, &outbox.FieldError{Field: "id", Problem: fmt.Sprintf("is %q, want a UUID", f.ID)}
		}
	}
	if f.OccurredAt != "" {
		if e.OccurredAt, err = time.Parse(time.RFC3339Nano, f.OccurredAt); err != nil {
			return e, &outbox.FieldError{Field: "occurred_at",
				Problem: fmt.Sprintf("is %q, want RFC 3339 such as 2025-01-31T12:00:00Z", f.OccurredAt)}
		}
	}
	if len(f.Metadata) > 0 {
		var raw map[string]json.RawMessage // values as they are written: numbers would lose digits as float64
		if err := json.Unmarshal(f.Metadata, &raw); err != nil {
			return e, &outbox.FieldError{Field: "metadata", Problem: "is no JSON object"}
		}
		e.Metadata = make(map[string]any, len(raw))
		for k, v := range raw {
			e.Metadata[k] = v
		}
	}
	return e, nil
}

// fieldName is the name that people give a field of outbox.Event: that of the flag, with _ for -.
func fieldName(field string) string {
	name, _, _ := strings.Cut(field, "[")
	known := map[string]string{
		"Topic": "topic", "SchemaID": "schema_id", "SchemaVersion": "schema_version", "AggregateID": "key",
		"AggregateType": "aggregate_type", "TenantID": "tenant", "Source": "source", "Destinations": "destination",
		"OccurredAt": "occurred_at", "Payload": "payload", "Metadata": "metadata",
	}
	return cmp.Or(known[name], field)
}

// writeFlags are the flags of outbox write: an event's fields, or with --jsonl what lines leave
// out.
type writeFlags struct {
	fields
	table, metadata string
	jsonl, strict   bool
}

func (a *application) write() *cobra.Command {
	f := writeFlags{fields: fields{SchemaVersion: 1}}
	cmd := command("write", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return a.onDatabase(cmd.Context(), func(c config.Config, db app.Database) error {
			w, err := openWriting(cmd.Context(), db, f)
			if err != nil {
				return err
			}
			defer w.Close()
			what, write := "the payload as JSON", a.writeOne
			if f.jsonl {
				what, write = "events, one a line", a.writeLines
			}
			if isTerminal(a.In) {
				fmt.Fprintf(a.Err, "type %s, then Ctrl-D\n", what)
			}
			return write(cmd.Context(), w, f.fields, c.Output)
		})
	})
	flags := cmd.Flags()
	flags.StringVar(&f.Topic, "topic", "", "`name` of the topic, such as order.placed (required)")
	flags.StringVar(&f.AggregateType, "aggregate-type", "", "`name` of the aggregate type, such as Order")
	flags.StringVar(&f.Key, "key", "", "key, whose events stay in order")
	flags.StringVar(&f.Tenant, "tenant", "", "`name` of the tenant (default: default)")
	flags.StringVar(&f.Source, "source", "outbox-cli", "`name` of the source")
	flags.StringSliceVar(&f.Destinations, "destination", nil, "`names` of the destinations, instead of the topic")
	flags.StringVar(&f.ID, "id", "", "`uuid` of the event (default: a new UUIDv7)")
	flags.StringVar(&f.metadata, "metadata", "", "`json` object with the metadata")
	flags.BoolVar(&f.jsonl, "jsonl", false, "input of one JSON event per line")
	flags.BoolVar(&f.strict, "strict", false, "order of a key among concurrent writers, too")
	flags.StringVar(&f.table, "table", "outbox_events", "`name` of the table")
	return cmd
}

// check says what the payload and the lines cannot cure, before stdin is read.
func (f *writeFlags) check() error {
	f.Metadata = json.RawMessage(f.metadata)
	if f.Topic == "" && !f.jsonl {
		return usagef("--topic is required: say what happened, for instance --topic order.placed")
	}
	if f.jsonl && f.ID != "" {
		return usagef("--id cannot be the id of every line: write it into the lines")
	}
	if err := identifier.CheckTable(f.table); err != nil {
		return usagef("--table: %w", err)
	}
	probe, err := f.event()
	probe.Payload, probe.Topic = json.RawMessage("null"), cmp.Or(probe.Topic, "from-the-line")
	if err == nil {
		err = probe.Validate(outbox.DefaultMaxPayload)
	}
	if field, ok := errors.AsType[*outbox.FieldError](err); ok {
		return usagef("--%s %s", strings.ReplaceAll(fieldName(field.Field), "_", "-"), field.Problem)
	}
	return nil
}

// writing is an open table to write into.
type writing struct{ app.Writing }

// openWriting also sees to it that the table is there.
func openWriting(ctx context.Context, db app.Database, f writeFlags) (writing, error) {
	w, err := db.Writing(ctx, outbox.WriterConfig{Table: f.table, Strict: f.strict})
	schema, unfit := errors.AsType[*outbox.SchemaError](err)
	if unfit && f.table != outbox.OutboxEvents().Table {
		// What the table needs to be served is not what it needs to be written here.
		needed := &outbox.SchemaError{Table: schema.Table, Missing: schema.Missing,
			Remedy: "correct --table, or insert with SQL into a table of another shape"}
		err = fmt.Errorf("--table: outbox write needs a table with the columns of outbox_events: %w", needed)
	}
	return writing{w}, err
}

// pending is an event that is about to be written.
type pending struct {
	event outbox.Event
	line  int
	ownID bool // not made here, so it may be in the table
}

// prepare validates an event and gives it its id.
func (w writing) prepare(ctx context.Context, of fields) (p pending, err error) {
	if p.event, err = of.event(); err == nil {
		p.ownID = p.event.ID != uuid.Nil
		p.event, err = w.Prepare(ctx, p.event)
	}
	if field, ok := errors.AsType[*outbox.FieldError](err); ok {
		err = fmt.Errorf("%s %s", fieldName(field.Field), field.Problem)
	}
	return p, err
}

// wrote is what -o json prints for an event.
type wrote struct {
	Line      int       `json:"line,omitempty"`
	ID        uuid.UUID `json:"id"`
	Duplicate bool      `json:"duplicate,omitempty"` // it was in the table before
}

// commit writes the events in one transaction, wakes the relays, and says what became of each.
func (w writing) commit(ctx context.Context, events []pending) ([]wrote, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitLimit)
	defer cancel()
	var own []uuid.UUID
	batch := make([]outbox.Event, len(events))
	for i, p := range events {
		batch[i] = p.event
		if p.ownID {
			own = append(own, p.event.ID)
		}
	}
	known, err := w.Commit(ctx, batch, own)
	if err != nil {
		return nil, err
	}
	done := make([]wrote, len(events))
	for i, p := range events {
		done[i] = wrote{Line: p.line, ID: p.event.ID, Duplicate: p.ownID && slices.Contains(known, p.event.ID)}
		known = append(known, p.event.ID) // the same id twice in one batch is one event
	}
	return done, nil
}

func (a *application) writeOne(ctx context.Context, w writing, event fields, form string) error {
	// More than any payload may have, so that Validate can name the size, and still a bound.
	payload, err := readAll(ctx, a.In, 16*outbox.DefaultMaxPayload)
	if err != nil {
		return fmt.Errorf("read the payload from stdin: %w", err)
	}
	if event.Payload = bytes.TrimSpace(payload); len(event.Payload) == 0 {
		return errors.New("stdin is empty: it is where the payload comes from, for instance: echo " +
			"'{}' | outbox write --topic order.placed")
	}
	prepared, err := w.prepare(ctx, event)
	if err != nil {
		return err
	}
	done, err := w.commit(ctx, []pending{prepared})
	if err != nil {
		return err
	}
	if done[0].Duplicate && form != "json" {
		fmt.Fprintln(a.Err, "an event with this id is in the table already and was left as it is")
	}
	return a.printResult(form, done[0], "%s", done[0].ID)
}
