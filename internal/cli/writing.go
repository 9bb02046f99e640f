package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/wire"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/tables"
)

// commitLimit bounds a transaction. A stop does not interrupt one: its outcome would be unknown.
const commitLimit = 30 * time.Second

// writing is an open table to write into.
type writing struct {
	pool     *pgxpool.Pool
	writer   *postgres.Writer
	browser  *postgres.Browser // tells which ids were there before
	notifier *postgres.Notifier

	stopNotifier context.CancelFunc
	background   sync.WaitGroup
}

// pending is an event that is about to be written.
type pending struct {
	event outbox.Event
	line  int
	ownID bool // not made here, so it may be in the table
}

// openWriting also sees to it that the table is there.
func openWriting(ctx context.Context, databaseURL string, f writeFlags) (_ *writing, err error) {
	cfg := outbox.WriterConfig{Table: f.table}
	if f.strict {
		cfg.Order = outbox.Strict
	}
	w := &writing{}
	if w.writer, err = postgres.NewWriter(cfg); err != nil {
		return nil, usageError{err}
	}
	if w.pool, err = wire.Pool(ctx, databaseURL); err != nil {
		return nil, err
	}
	layout := tables.OutboxEvents()
	layout.Table = f.table
	if w.browser, err = postgres.OpenBrowser(ctx, w.pool, layout); err == nil {
		w.notifier, err = postgres.NewNotifier(w.pool, f.table, 0)
	}
	if err != nil {
		w.pool.Close()
		var schema *tables.SchemaError
		if errors.As(err, &schema) && f.table != tables.OutboxEvents().Table {
			// What the table needs to be served is not what it needs to be written here.
			return nil, fmt.Errorf("--table: outbox write needs a table with the columns of outbox_events: %w", &tables.SchemaError{
				Table: schema.Table, Missing: schema.Missing, Remedy: "correct --table, or insert with SQL into a table of another shape"})
		}
		return nil, err
	}
	ctx, w.stopNotifier = context.WithCancel(context.WithoutCancel(ctx))
	w.background.Go(func() { _ = w.notifier.Run(ctx) }) // it returns nil
	return w, nil
}

// prepare validates an event and gives it its id.
func (w *writing) prepare(ctx context.Context, e outbox.Event) (outbox.Event, error) {
	rows, err := w.writer.Prepare(ctx, []outbox.Event{e})
	if err != nil {
		var field *outbox.FieldError
		if errors.As(err, &field) {
			return e, fmt.Errorf("%s %s", fieldName(field.Field), field.Problem)
		}
		return e, err
	}
	return rows[0].Event, nil
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
	var known []uuid.UUID
	err := w.writer.InTx(ctx, w.pool, func(tx pgx.Tx) (_ []outbox.Event, err error) {
		if len(own) > 0 {
			known, err = w.browser.Known(ctx, tx, own)
		}
		return batch, err
	}, w.notifier)
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
	w.stopNotifier()
	w.background.Wait()
	w.pool.Close()
}
