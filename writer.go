package outbox

import (
	"context"
	"database/sql"
)

// WriterConfig configures a Writer. The zero value is usable.
type WriterConfig struct {
	Table  string // table to write, schema-qualified if need be; "" means outbox_events
	Source string // Source of events that have none
	// Strict orders the events of one key that concurrent transactions write. It holds a
	// transaction-scoped advisory lock on each event's key until commit: of two numbers that are
	// drawn before commit the lower one can commit later. It waits 30 s for one, or as long as the
	// transaction's lock_timeout where that is shorter; then it is an error. (SQLite has one writer
	// at a time, so there is nothing to hold.) Writers of different keys do not wait for each
	// other. Transactions that call Write several times with keys in different orders can deadlock,
	// which the database ends with an error (40P01). One call locks its keys in a fixed order.
	//
	// Without it no lock is taken. Transactions that already serialise on the aggregate (they
	// update or lock its row before they write the event) are in order; two that do not may arrive
	// in either order.
	Strict bool
	// RefuseDuplicates makes a second write of an id ErrDuplicateEvent; the transaction stays
	// usable, the call's other events are in it. Without it the second write is a no-op: right for
	// a producer that repeats a job.
	RefuseDuplicates bool
	MaxPayload       int // bytes; 0 means DefaultMaxPayload
	// Fill completes an event from the caller's context (tenant, trace, correlation) before it is
	// validated. It may be nil.
	Fill func(ctx context.Context, e *Event)
}

// SQLTx is a transaction of database/sql, or of what is built on it: *sql.Tx, *sqlx.Tx, bun.Tx, a
// generated *ent.Tx (feature sql/execquery), and tx.Statement.ConnPool of GORM. sqlc's DBTX has
// these methods and two more.
//
// What is no transaction is refused with ErrNoTransaction, before anything is sent: whatever has no
// method Commit() error, so *sql.DB, *sql.Conn, *sqlx.DB, *bun.DB, *ent.Client, and GORM's ConnPool
// outside a transaction. A type of your own that wraps a transaction needs that method too; it is
// never called.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Writer writes events inside the caller's own transaction: they exist exactly if it commits. It is
// safe for concurrent use. Make one with postgres.NewWriter (pgx.Tx), postgres.NewSQLWriter or
// sqlite.NewWriter (*sql.Tx, and those of GORM, ent, sqlx, bun).
type Writer[Tx any] interface {
	// Write inserts the events, in their order, with one statement. Nothing is sent if one of them
	// is invalid: the error is then a *FieldError and the transaction is untouched. Any other error
	// is the database's and has aborted the transaction, except ErrDuplicateEvent. (SQLite undoes
	// the call alone and leaves the transaction usable.)
	Write(ctx context.Context, tx Tx, events ...Event) error
}
