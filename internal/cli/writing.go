package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/store/identifier"
)

// commitLimit bounds a transaction. A stop does not interrupt one: its outcome would be unknown.
const commitLimit = 30 * time.Second

// writing is an open table to write into.
type writing struct {
	db app.Database
	app.Writing
}

// pending is an event that is about to be written.
type pending struct {
	event outbox.Event
	line  int
	ownID bool // not made here, so it may be in the table
}

// openWriting also sees to it that the table is there.
func openWriting(ctx context.Context, databaseURL string, f writeFlags) (*writing, error) {
	if err := identifier.CheckTable(f.table); err != nil {
		return nil, usagef("--table: %w", err)
	}
	cfg := outbox.WriterConfig{Table: f.table, Strict: f.strict}
	db, err := app.OpenDatabase(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	w, err := db.Writing(ctx, cfg)
	if err != nil {
		db.Close()
		var schema *outbox.SchemaError
		if errors.As(err, &schema) && f.table != outbox.OutboxEvents().Table {
			// What the table needs to be served is not what it needs to be written here.
			return nil, fmt.Errorf("--table: outbox write needs a table with the columns of outbox_events: %w",
				&outbox.SchemaError{
					Table: schema.Table, Missing: schema.Missing,
					Remedy: "correct --table, or insert with SQL into a table of another shape"})
		}
		return nil, err
	}
	return &writing{db, w}, nil
}

// prepare validates an event and gives it its id.
func (w *writing) prepare(ctx context.Context, e outbox.Event) (outbox.Event, error) {
	e, err := w.Prepare(ctx, e)
	var field *outbox.FieldError
	if errors.As(err, &field) {
		return e, fmt.Errorf("%s %s", fieldName(field.Field), field.Problem)
	}
	return e, err
}

// commit writes the events in one transaction, wakes the relays, and says what became of each.
func (w *writing) commit(ctx context.Context, events []pending) ([]wrote, error) {
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

// close sends the last wake-up.
func (w *writing) close() {
	w.Close()
	w.db.Close()
}
