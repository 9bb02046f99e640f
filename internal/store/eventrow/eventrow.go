// Package eventrow is an event on its way into a row of an outbox table, whichever store has it.
//
// Guaranteed: what Prepare lets pass fits the columns of outbox_events in both databases.
//
// Not guaranteed: that the rows are stored; an Inserter does that, in its caller's transaction.
package eventrow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Row is an event as an Inserter stores it: validated, defaults applied, optional parts as JSON or
// nil.
type Row struct {
	outbox.Event
	// Drawn tells that Prepare has drawn the id, so that no row has it yet.
	Drawn            bool
	DestinationsJSON []byte
	MetadataJSON     []byte
}

// Inserter puts rows into an outbox table within tx; each store has one per transaction type. It
// returns the ids that were new; where WriterConfig ignores duplicates, or all ids are drawn, it
// need not.
type Inserter[Tx any] interface {
	Insert(ctx context.Context, tx Tx, rows []Row) (inserted []uuid.UUID, err error)
}

// NewWriter returns an outbox.Writer that stores rows with inserter.
func NewWriter[Tx any](inserter Inserter[Tx], cfg outbox.WriterConfig) outbox.Writer[Tx] {
	return writer[Tx]{inserter, cfg}
}

type writer[Tx any] struct {
	inserter Inserter[Tx]
	cfg      outbox.WriterConfig
}

// Write implements outbox.Writer.
func (w writer[Tx]) Write(ctx context.Context, tx Tx, events ...outbox.Event) error {
	rows, err := Prepare(ctx, w.cfg, events)
	if err != nil || len(rows) == 0 {
		return err
	}
	inserted, err := w.inserter.Insert(ctx, tx, rows)
	if err != nil {
		return fmt.Errorf("write %d events: %w", len(rows), err)
	}
	return CheckInserted(w.cfg, rows, inserted)
}

// Prepare completes and validates events without writing them. The error is an *outbox.FieldError.
func Prepare(ctx context.Context, cfg outbox.WriterConfig, events []outbox.Event) ([]Row, error) {
	if cfg.MaxPayload <= 0 {
		cfg.MaxPayload = outbox.DefaultMaxPayload
	}
	rows := make([]Row, len(events))
	for i, e := range events {
		row, err := complete(ctx, cfg, e)
		if err != nil {
			var fe *outbox.FieldError
			if errors.As(err, &fe) {
				fe.Event = i
			}
			return nil, err
		}
		rows[i] = row
	}
	return rows, nil
}

// CheckInserted compares what was sent with the ids that turned out to be new. One that was not is
// outbox.ErrDuplicateEvent where duplicates are refused.
func CheckInserted(cfg outbox.WriterConfig, rows []Row, inserted []uuid.UUID) error {
	if !cfg.RefuseDuplicates || len(inserted) == len(rows) || Drawn(rows) {
		return nil
	}
	fresh := make(map[uuid.UUID]bool, len(inserted))
	for _, id := range inserted {
		fresh[id] = true
	}
	for i := range rows {
		if !fresh[rows[i].ID] {
			return fmt.Errorf("event %d: id %s: %w", i, rows[i].ID, outbox.ErrDuplicateEvent)
		}
		delete(fresh, rows[i].ID) // the same id twice in one call is a duplicate as well
	}
	return nil
}

// Drawn tells whether the ids of all rows are drawn: none can be a duplicate.
func Drawn(rows []Row) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool { return !r.Drawn })
}

func complete(ctx context.Context, cfg outbox.WriterConfig, e outbox.Event) (Row, error) {
	if cfg.Fill != nil {
		cfg.Fill(ctx, &e)
	}
	drawn := e.ID == uuid.Nil
	if drawn {
		id, err := outbox.NewID()
		if err != nil {
			return Row{}, err
		}
		e.ID = id
	}
	e.Source = cmp.Or(e.Source, cfg.Source)
	e.TenantID = cmp.Or(e.TenantID, DefaultTenant)
	e.SchemaVersion = cmp.Or(e.SchemaVersion, 1)
	if e.OccurredAt.IsZero() {
		e.OccurredAt = time.Now()
	}
	if err := e.Validate(cfg.MaxPayload); err != nil {
		return Row{}, err
	}
	row := Row{Event: e, Drawn: drawn}
	var err error
	if len(e.Destinations) > 0 {
		if row.DestinationsJSON, err = json.Marshal(e.Destinations); err != nil {
			return Row{}, &outbox.FieldError{Field: "Destinations", Problem: "do not marshal to JSON", Err: err}
		}
	}
	if e.Metadata != nil {
		if row.MetadataJSON, err = json.Marshal(e.Metadata); err != nil {
			return Row{}, &outbox.FieldError{Field: "Metadata", Problem: "does not marshal to JSON", Err: err}
		}
		if err := checkMetadata(row.MetadataJSON, cfg.MaxPayload); err != nil {
			return Row{}, err
		}
	}
	return row, nil
}

// DefaultTenant is the tenant of an event that names none (ADR-004's column default).
const DefaultTenant = "default"

// checkMetadata finds what the database would refuse: in a column of JSON, what it refuses of a
// payload.
func checkMetadata(text []byte, maxBytes int) error {
	if len(text) > maxBytes {
		problem := fmt.Sprintf("has %d bytes of JSON, the limit is %d", len(text), maxBytes)
		return &outbox.FieldError{Field: "Metadata", Problem: problem}
	}
	probe := outbox.Event{Topic: "metadata", Source: "metadata", Payload: text}
	err := probe.Validate(maxBytes)
	var field *outbox.FieldError
	if errors.As(err, &field) {
		field.Field = "Metadata"
	}
	return err
}

// OrNull returns a text as a parameter, NULL for an empty one.
func OrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
