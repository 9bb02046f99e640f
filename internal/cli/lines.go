package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

const (
	batchLines = 500
	batchBytes = 8 << 20 // a transaction of 500 of the largest payloads would be half a gigabyte
	// maxLine leaves room for the largest payload, as much metadata, and the escapes that JSON may have written both
	// with.
	maxLine = 8 * outbox.DefaultMaxPayload
	// linger is how long a line waits for others to share its transaction. Somebody may be typing, or following a log.
	linger = 50 * time.Millisecond
)

// inputLine is a line of --jsonl.
type inputLine struct {
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

// parseLine returns the event of a line; e has the fields that the line may leave out. Errors begin with the field's
// name.
func parseLine(text []byte, e outbox.Event) (outbox.Event, error) {
	var in inputLine
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return e, undecodable(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("there is more than one JSON value on it")
	}
	for _, f := range []struct {
		dst *string
		src string
	}{
		{&e.Topic, in.Topic}, {&e.AggregateID, in.Key}, {&e.AggregateType, in.AggregateType}, {&e.TenantID, in.Tenant},
		{&e.Source, in.Source}, {&e.SchemaID, in.SchemaID},
	} {
		if f.src != "" {
			*f.dst = f.src
		}
	}
	var err error
	if in.ID != "" {
		if e.ID, err = uuid.Parse(in.ID); err != nil {
			return e, fmt.Errorf("id is %q, want a UUID", in.ID)
		}
	}
	if in.OccurredAt != "" {
		if e.OccurredAt, err = time.Parse(time.RFC3339Nano, in.OccurredAt); err != nil {
			return e, fmt.Errorf("occurred_at is %q, want RFC 3339 such as 2025-01-31T12:00:00Z", in.OccurredAt)
		}
	}
	if in.SchemaVersion != 0 {
		e.SchemaVersion = in.SchemaVersion
	}
	if len(in.Destinations) > 0 {
		e.Destinations = in.Destinations
	}
	if in.Metadata != nil && string(in.Metadata) != "null" {
		if e.Metadata, err = parseMetadata(in.Metadata); err != nil {
			return e, fmt.Errorf("metadata: %w", err)
		}
	}
	e.Payload = in.Payload
	return e, nil
}

// undecodable says in an operator's words why a line is no event.
func undecodable(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && kind.Field != "" {
		return fmt.Errorf("%s: got JSON of type %s, want %s", kind.Field, kind.Value, typeName(kind.Type))
	}
	if errors.As(err, &kind) {
		return fmt.Errorf("got JSON of type %s, want an object with the fields of an event", kind.Value)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("its JSON is not complete: an event must be on one line")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// typeName is a type of inputLine in the words of JSON.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "list of strings"
	case reflect.Int:
		return "whole number"
	}
	return t.String()
}

// writeLines writes an event a line. template has what lines may leave out.
func (a *application) writeLines(ctx context.Context, w *writing, template outbox.Event, form string) error {
	b := lineBatch{app: a, writing: w, form: form, next: 1, progress: newProgress(a.Err)}
	problem := b.readAll(ctx, template)
	// The lines before a bad one are good, so they are committed, and one goes on from the bad one.
	if err := b.flush(ctx); err != nil {
		problem = err
	}
	b.progress.done()
	if problem != nil {
		if b.next == 1 {
			return fmt.Errorf("%w; nothing before that was written", problem)
		}
		return fmt.Errorf("%w; the lines before line %d are committed (%s), go on from there with the same flags: tail -n "+
			"+%d FILE | outbox write --jsonl …", problem, b.next, b.summary(), b.next)
	}
	out := a.Out
	if form == "json" {
		out = a.Err
	}
	fmt.Fprintf(out, "wrote %s\n", b.summary())
	return nil
}

// lineBatch gathers lines to a transaction.
type lineBatch struct {
	app      *application
	writing  *writing
	form     string
	progress *progress

	waiting           []pending
	bytes             int
	due               time.Time // when what is waiting is committed at the latest
	next              int       // first line that is not committed
	wrote, duplicates int
}

// readAll commits full batches and returns at the end of the input, or with what is wrong with a line; the last batch
// is not committed yet.
func (b *lineBatch) readAll(ctx context.Context, template outbox.Event) error {
	lines := readLines(ctx, b.app.In)
	for {
		pause := (<-chan time.Time)(nil)
		if len(b.waiting) > 0 {
			pause = time.After(time.Until(b.due))
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-pause:
			if err := b.flush(ctx); err != nil {
				return err
			}
		case line := <-lines:
			if errors.Is(line.err, io.EOF) {
				return nil
			}
			if err := b.add(ctx, line, template); err != nil {
				return err
			}
		}
	}
}

func (b *lineBatch) add(ctx context.Context, line inputText, template outbox.Event) error {
	if line.err != nil {
		return fmt.Errorf("line %d: %w", line.number, line.err)
	}
	if len(bytes.TrimSpace(line.text)) == 0 {
		return nil
	}
	event, err := parseLine(line.text, template)
	ownID := event.ID != uuid.Nil
	if err == nil {
		event, err = b.writing.prepare(ctx, event)
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", line.number, err)
	}
	if len(b.waiting) == 0 {
		b.due = time.Now().Add(linger)
	}
	b.waiting = append(b.waiting, pending{event: event, line: line.number, ownID: ownID})
	if b.bytes += len(line.text); len(b.waiting) == batchLines || b.bytes >= batchBytes {
		return b.flush(ctx)
	}
	return nil
}

// flush commits what is waiting.
func (b *lineBatch) flush(ctx context.Context) error {
	if len(b.waiting) == 0 {
		return nil
	}
	first, last := b.waiting[0].line, b.waiting[len(b.waiting)-1].line
	done, err := b.writing.commit(ctx, b.waiting)
	b.waiting, b.bytes = b.waiting[:0], 0 // also after an error: it ends the writing
	if err != nil {
		return fmt.Errorf("commit lines %d to %d: %w", first, last, err)
	}
	b.next = last + 1
	for _, d := range done {
		if d.Duplicate {
			b.duplicates++
		} else {
			b.wrote++
		}
		if b.form == "json" {
			if err := printLine(b.app.Out, d); err != nil {
				return err
			}
		}
	}
	b.progress.show("%s", counted(b.wrote, "event"))
	return nil
}

func (b *lineBatch) summary() string {
	s := counted(b.wrote, "event")
	if b.duplicates > 0 {
		s += fmt.Sprintf(", %d more were in the table already", b.duplicates)
	}
	return s
}
