package outbox

import (
	"context"
	"log/slog"
)

// Database is what a Relay needs of a database: postgres.DB and sqlite.DB are such.
type Database interface {
	// OpenTable opens a table to be served, after checking that it fits the layout and that this
	// role may serve it. What waiting does not cure is a *SchemaError, ErrRowsHidden,
	// ErrNotAllowed, or of ClassPermanent.
	OpenTable(ctx context.Context, layout Layout) (Store, error)
	// Watch returns a function that looks at the tables of some stores that OpenTable has returned,
	// all at once, and answers in their order. Of a table that is busy, the caller knows that it
	// has undelivered rows. It locks and writes nothing, and costs some lookups in indexes. nil
	// says that there is no cheaper way than to ask each table.
	Watch(stores []Store) (look func(ctx context.Context, busy []bool) ([]Watched, error), err error)
	// Debtors returns which sinks owe events, of whatever table. It is none where the database, or
	// this role, has no outbox_deliveries.
	Debtors(ctx context.Context) ([]Debtor, error)
	// Listen calls wake with the name of a table that somebody has written into, or "" where it may
	// be any, until ctx ends. It hears what it can: a relay polls besides.
	Listen(ctx context.Context, log *slog.Logger, wake func(table string)) error
	// Retain removes what is old from a table until ctx ends, and returns nil then. A failure does
	// not end it.
	Retain(ctx context.Context, layout Layout, r Retention) error
	// RetainLetters is Retain for replayed dead letters.
	RetainLetters(ctx context.Context, r Retention) error
}

// Watched is what a look at a table finds.
type Watched struct {
	// Undelivered says that the table has undelivered rows, of whichever lane, also such as wait
	// for a retry.
	Undelivered bool
	// Leases is another text than before if another relay has come or gone, a lane has changed
	// hands or lost its row, or an operator has paused something.
	Leases string
}
