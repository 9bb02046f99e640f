package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
)

// writeFlags are the flags of outbox write: an event's fields, or with --jsonl their defaults.
type writeFlags struct {
	table, topic, aggregateType, key, tenant, source, schemaID, id, occurredAt, metadata string
	schemaVersion                                                                        int
	destinations                                                                         []string
	jsonl, strict                                                                        bool
}

func (a *application) write() *cobra.Command {
	var f writeFlags
	cmd := &cobra.Command{
		Use:   "write --topic TOPIC < payload.json",
		Short: "Write events into the outbox, as an application would",
		Long: `write reads the payload of one event from stdin, any JSON value, commits the event and prints its id.
With -o json it prints an object.

With --jsonl each line of stdin is an event, an object with the fields topic, payload and, if wanted, key,
aggregate_type, tenant, source, id, occurred_at (RFC 3339), schema_id, schema_version, destinations (a list) and
metadata (an object). The flags give what a line leaves out. Lines are committed in their order, up to 500 in a
transaction, without waiting for more than a moment; at the end it says how many. With -o json it prints the id
of each line once that is committed.

A line that cannot be written ends it: the lines before are committed, the error says which line and field. An
event whose id is in the table already is left alone, so with ids of your own a file may be sent again. Not so
in outbox_log, which knows no ids: what is sent again is another event there, and its sink refuses the copy.

Events with the same tenant, aggregate type and key stay in order. --strict keeps that too when several
processes write one key at the same time, by letting them wait for each other.`,
		Example: `  echo '{"total": 12}' | outbox write --topic order.placed --aggregate-type Order --key 42
  outbox write --jsonl --source shop < events.jsonl
  outbox write --topic order.placed --destination billing,shipping --metadata '{"user_id": 7}' < order.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			template, err := f.event()
			if err != nil {
				return err
			}
			c, err := a.settings(config.Database)
			if err != nil {
				return err
			}
			if isTerminal(a.In) {
				what := "the payload as JSON"
				if f.jsonl {
					what = "events, one a line"
				}
				fmt.Fprintf(a.Err, "type %s, then Ctrl-D\n", what)
			}
			w, err := openWriting(cmd.Context(), c.Database, f)
			if err != nil {
				return err
			}
			defer w.close()
			if f.jsonl {
				return a.writeLines(cmd.Context(), w, template, c.Output)
			}
			return a.writeOne(cmd.Context(), w, template, c.Output)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.topic, "topic", "",
		"what happened, for instance order.placed; also where it goes, unless --destination says")
	flags.StringVar(&f.aggregateType, "aggregate-type", "", "`type` of the thing it happened to, for instance Order")
	flags.StringVar(&f.key, "key", "", "`id` of the thing it happened to: its events stay in order")
	flags.StringVar(&f.tenant, "tenant", "", "`tenant` (default: default)")
	flags.StringVar(&f.source, "source", "outbox-cli", "bounded `context` that speaks")
	flags.StringSliceVar(&f.destinations, "destination", nil, "`channels` to deliver to, instead of the topic")
	flags.StringVar(&f.id, "id", "", "event `id`, a UUID (default: a new UUIDv7)")
	flags.StringVar(&f.metadata, "metadata", "", "JSON `object` that travels with the event")
	flags.StringVar(&f.occurredAt, "occurred-at", "", "`time` at which it happened, RFC 3339 (default: now)")
	flags.StringVar(&f.schemaID, "schema-id", "", "`name` of the payload's schema")
	flags.IntVar(&f.schemaVersion, "schema-version", 1, "`version` of the payload's schema")
	flags.BoolVar(&f.jsonl, "jsonl", false, "read one event a line")
	flags.BoolVar(&f.strict, "strict", false, "keep the order of a key also among concurrent writers")
	flags.StringVar(&f.table, "table", "outbox_events", "`table` to write, with the columns of outbox_events")
	return cmd
}

// event is the event without payload that the flags describe.
func (f *writeFlags) event() (outbox.Event, error) {
	e := outbox.Event{
		Topic: f.topic, AggregateType: f.aggregateType, AggregateID: f.key, TenantID: f.tenant, Source: f.source,
		SchemaID: f.schemaID, SchemaVersion: f.schemaVersion, Destinations: f.destinations,
	}
	if f.topic == "" && !f.jsonl {
		return e, usagef("--topic is required: say what happened, for instance --topic order.placed")
	}
	if f.jsonl && f.id != "" {
		return e, usagef("--id cannot be the id of every line: write it into the lines")
	}
	var err error
	if f.id != "" {
		if e.ID, err = uuid.Parse(f.id); err != nil {
			return e, usagef("--id is %q, want a UUID", f.id)
		}
	}
	if f.occurredAt != "" {
		if e.OccurredAt, err = time.Parse(time.RFC3339Nano, f.occurredAt); err != nil {
			return e, usagef("--occurred-at is %q, want RFC 3339 such as 2025-01-31T12:00:00Z", f.occurredAt)
		}
	}
	if f.metadata != "" {
		if e.Metadata, err = parseMetadata([]byte(f.metadata)); err != nil {
			return e, usagef("--metadata: %w", err)
		}
	}
	// What the payload and the lines cannot cure is said before stdin is read.
	probe := e
	probe.Payload = json.RawMessage("null")
	if probe.Topic == "" {
		probe.Topic = "from-the-line"
	}
	var field *outbox.FieldError
	if err := probe.Validate(outbox.DefaultMaxPayload); errors.As(err, &field) {
		return e, usagef("--%s %s", strings.ReplaceAll(fieldName(field.Field), "_", "-"), field.Problem)
	}
	return e, nil
}

// parseMetadata keeps the values as they are written: numbers would lose digits as float64.
func parseMetadata(text []byte) (map[string]any, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, errors.New("want a JSON object")
	}
	m := make(map[string]any, len(raw))
	for k, v := range raw {
		m[k] = v
	}
	return m, nil
}

// fieldName is the name that people give a field of outbox.Event: that of the flag, with _ for -.
func fieldName(field string) string {
	name, _, _ := strings.Cut(field, "[")
	known := map[string]string{
		"Topic": "topic", "SchemaID": "schema_id", "SchemaVersion": "schema_version", "AggregateID": "key",
		"AggregateType": "aggregate_type",
		"TenantID":      "tenant", "Source": "source", "Destinations": "destination", "OccurredAt": "occurred_at",
		"Payload": "payload", "Metadata": "metadata",
	}
	if n, ok := known[name]; ok {
		return n
	}
	return field
}

// wrote is what -o json prints for an event.
type wrote struct {
	Line      int       `json:"line,omitempty"`
	ID        uuid.UUID `json:"id"`
	Duplicate bool      `json:"duplicate,omitempty"` // it was in the table before
}

func (a *application) writeOne(ctx context.Context, w *writing, event outbox.Event, form string) error {
	// More than any payload may have, so that Validate can name the size, and still a bound.
	payload, err := readAll(ctx, a.In, 16*outbox.DefaultMaxPayload)
	if err != nil {
		return fmt.Errorf("read the payload from stdin: %w", err)
	}
	event.Payload = bytes.TrimSpace(payload)
	if len(event.Payload) == 0 {
		return errors.New("stdin is empty: it is where the payload comes from, for instance: echo '{}' | outbox write " +
			"--topic order.placed")
	}
	prepared, err := w.prepare(ctx, event)
	if err != nil {
		return err
	}
	done, err := w.commit(ctx, []pending{{event: prepared, ownID: event.ID != uuid.Nil}})
	if err != nil {
		return err
	}
	if form == "json" {
		return printJSON(a.Out, done[0])
	}
	if done[0].Duplicate {
		fmt.Fprintln(a.Err, "an event with this id is in the table already and was left as it is")
	}
	fmt.Fprintln(a.Out, done[0].ID)
	return nil
}
