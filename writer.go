package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Order is how a Writer orders the events of one key that concurrent transactions write.
type Order int

const (
	// Relaxed takes no lock. Transactions that already serialise on the aggregate (they update or lock its row before
	// they write the event) are in order; two that do not may arrive in either order.
	Relaxed Order = iota
	// Strict holds a transaction-scoped advisory lock on each event's key until commit (on SQLite, which has one writer
	// at a time, there is nothing to hold), because a sequence number drawn before commit orders two writers of one key
	// wrongly: the lower one can commit later. Writers of different keys do not wait for each other. Transactions that
	// call Write several times with keys in different orders can deadlock, which the database ends with an error
	// (40P01); one call locks its keys in a fixed order.
	Strict
)

// OnDuplicate is what a Writer does with an event whose id is in the table already.
type OnDuplicate int

const (
	// IgnoreDuplicate makes the second write a no-op: right for a producer that repeats a job.
	IgnoreDuplicate OnDuplicate = iota
	// RefuseDuplicate makes it ErrDuplicateEvent; the transaction stays usable, the call's other events are in it.
	RefuseDuplicate
)

// WriterConfig configures a Writer. The zero value is usable.
type WriterConfig struct {
	Table       string // table to write, schema-qualified if need be; "" means outbox_events
	Source      string // Source of events that have none
	Order       Order
	OnDuplicate OnDuplicate
	MaxPayload  int // bytes; 0 means DefaultMaxPayload
	// Fill completes an event from the caller's context (tenant, trace, correlation) before it is validated. It may be
	// nil.
	Fill func(ctx context.Context, e *Event)
}

// Row is an Event as an Inserter stores it: validated, defaults applied, optional parts as JSON or nil.
type Row struct {
	Event
	DestinationsJSON []byte
	MetadataJSON     []byte
}

// SQLTx is a transaction of database/sql, or of what is built on it: *sql.Tx, *sqlx.Tx, bun.Tx, a generated *ent.Tx
// (feature sql/execquery), and tx.Statement.ConnPool of GORM. sqlc's DBTX has these methods and two more.
//
// What is no transaction is refused with ErrNoTransaction, before anything is sent: whatever has no method Commit()
// error, so *sql.DB, *sql.Conn, *sqlx.DB, *bun.DB, *ent.Client, and GORM's ConnPool outside a transaction. A type of
// your own that wraps a transaction needs that method too; it is never called.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Inserter puts rows into an outbox table within tx; each Store package has one per transaction type. It returns the
// ids that were new; where WriterConfig ignores duplicates it need not.
type Inserter[Tx any] interface {
	Insert(ctx context.Context, tx Tx, rows []Row, order Order) (inserted []uuid.UUID, err error)
}

// Writer writes events inside the caller's own transaction: they exist exactly if it commits. It is safe for concurrent
// use. Make one with postgres.NewWriter (pgx.Tx), postgres.NewSQLWriter or sqlite.NewWriter (*sql.Tx, and those of
// GORM, ent, sqlx, bun).
type Writer[Tx any] struct {
	inserter Inserter[Tx]
	cfg      WriterConfig
}

// NewWriter returns a Writer that stores rows with inserter.
func NewWriter[Tx any](inserter Inserter[Tx], cfg WriterConfig) *Writer[Tx] {
	if cfg.MaxPayload <= 0 {
		cfg.MaxPayload = DefaultMaxPayload
	}
	return &Writer[Tx]{inserter: inserter, cfg: cfg}
}

// Write inserts the events, in their order, with one statement. Nothing is sent if one of them is invalid: the error is
// then a *FieldError and the transaction is untouched. Any other error is the database's and has aborted the
// transaction, except ErrDuplicateEvent. (SQLite undoes the call alone and leaves the transaction usable.)
func (w *Writer[Tx]) Write(ctx context.Context, tx Tx, events ...Event) error {
	rows, err := w.Prepare(ctx, events)
	if err != nil || len(rows) == 0 {
		return err
	}
	inserted, err := w.inserter.Insert(ctx, tx, rows, w.cfg.Order)
	if err != nil {
		return fmt.Errorf("write %d events: %w", len(rows), err)
	}
	return w.CheckInserted(rows, inserted)
}

// Config returns the configuration with its defaults applied.
func (w *Writer[Tx]) Config() WriterConfig { return w.cfg }

// Prepare completes and validates events without writing them. It is for code that sends the INSERT itself, such as
// postgres.InTx, which pipelines it with COMMIT.
func (w *Writer[Tx]) Prepare(ctx context.Context, events []Event) ([]Row, error) {
	rows := make([]Row, len(events))
	for i, e := range events {
		row, err := w.prepare(ctx, e)
		if err != nil {
			var fe *FieldError
			if errors.As(err, &fe) {
				fe.Event = i
			}
			return nil, err
		}
		rows[i] = row
	}
	return rows, nil
}

// CheckInserted compares what was sent with the ids that turned out to be new, and answers as OnDuplicate says.
func (w *Writer[Tx]) CheckInserted(rows []Row, inserted []uuid.UUID) error {
	if w.cfg.OnDuplicate == IgnoreDuplicate || len(inserted) == len(rows) {
		return nil
	}
	fresh := make(map[uuid.UUID]bool, len(inserted))
	for _, id := range inserted {
		fresh[id] = true
	}
	for i := range rows {
		if !fresh[rows[i].ID] {
			return fmt.Errorf("event %d: id %s: %w", i, rows[i].ID, ErrDuplicateEvent)
		}
		delete(fresh, rows[i].ID) // the same id twice in one call is a duplicate as well
	}
	return nil
}

func (w *Writer[Tx]) prepare(ctx context.Context, e Event) (Row, error) {
	if w.cfg.Fill != nil {
		w.cfg.Fill(ctx, &e)
	}
	if e.ID == uuid.Nil {
		id, err := NewID()
		if err != nil {
			return Row{}, err
		}
		e.ID = id
	}
	if e.Source == "" {
		e.Source = w.cfg.Source
	}
	if e.TenantID == "" {
		e.TenantID = DefaultTenant
	}
	if e.SchemaVersion == 0 {
		e.SchemaVersion = 1
	}
	if e.OccurredAt.IsZero() {
		e.OccurredAt = time.Now()
	}
	if err := e.Validate(w.cfg.MaxPayload); err != nil {
		return Row{}, err
	}
	row := Row{Event: e}
	var err error
	if len(e.Destinations) > 0 {
		if row.DestinationsJSON, err = json.Marshal(e.Destinations); err != nil {
			return Row{}, &FieldError{Field: "Destinations", Problem: "do not marshal to JSON", Err: err}
		}
	}
	if e.Metadata != nil {
		if row.MetadataJSON, err = json.Marshal(e.Metadata); err != nil {
			return Row{}, &FieldError{Field: "Metadata", Problem: "does not marshal to JSON", Err: err}
		}
		if err := checkJSON("Metadata", row.MetadataJSON, w.cfg.MaxPayload); err != nil {
			return Row{}, err
		}
		if len(row.MetadataJSON) > w.cfg.MaxPayload {
			problem := fmt.Sprintf("has %d bytes of JSON, the limit is %d", len(row.MetadataJSON), w.cfg.MaxPayload)
			return Row{}, &FieldError{Field: "Metadata", Problem: problem}
		}
	}
	return row, nil
}

// DefaultTenant is the tenant of an event that names none (ADR-004's column default).
const DefaultTenant = "default"
