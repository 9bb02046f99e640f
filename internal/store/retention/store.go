package retention

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Turns is whose turn it is to look after a table.
type Turns interface {
	// Lease takes the table's maintenance, or keeps it. It is refused while another owner holds it,
	// and where that owner's last run began less than Least ago. A renewal is refused only if
	// somebody else has taken over.
	Lease(ctx context.Context, request LeaseRequest) (Lease, error)
	// Release gives the maintenance up and records what the run did.
	Release(ctx context.Context, owner uuid.UUID, done Done) error
}

// Store is one table in one database, whose clock decides everything.
type Store interface {
	Turns
	// Find calls row for removable rows, and returns where the next search starts, or "" at the
	// end. It changes and locks nothing. It looks at a bounded number of rows, so that a page may
	// have none and not be the last.
	Find(ctx context.Context, search Search, row func(Row) error) (next string, err error)
	// Remove removes those of the rows that are still removable, if owner still holds the lease.
	// The result is valid also where there is an error.
	Remove(ctx context.Context, removal Removal) (Removed, error)
}

// LeaseRequest asks for the maintenance of a table.
type LeaseRequest struct {
	Owner uuid.UUID
	TTL   time.Duration
	Least time.Duration // since another owner's last run began, or the lease is refused
}

// Lease is the answer to a LeaseRequest.
type Lease struct {
	Held bool
	// SinceSweep is how long ago the last sweep that reached the end began; very long if there was
	// none.
	SinceSweep time.Duration
}

// Done is what a run did.
type Done struct {
	Rows  int64
	Swept bool // it looked at every row
}

// Search is one page of looking for rows.
type Search struct {
	Sweep   bool   // every row, in the order in which they are stored, rather than in the order in which they grow old
	After   string // what the page before returned
	Limit   int
	Content bool // fill Row.Content

	OlderThan time.Duration // since delivery, by the database's clock
}

// Row is a removable row.
type Row struct {
	ID       uuid.UUID
	Position int64
	Content  []byte // the whole row as a JSON object; valid during the call

	// Where it is stored; the Store's own business.
	Place string
	Part  uint32
}

// Removal is one batch.
type Removal struct {
	Owner     uuid.UUID
	OlderThan time.Duration // as in the search: a row may have changed since
	Rows      []Row
	Archive   bool // into the archive table, in the same transaction
}

// Removed is the outcome of a Removal.
type Removed struct {
	Rows    int   // removed
	Refused int   // rows that the database does not let go: a foreign key, a trigger
	Refusal error // the first of these errors
}

// ErrNoAge says that a table's layout names neither a time of delivery nor one of writing: nothing
// tells how old a row is.
var ErrNoAge = errors.New("nothing tells how old its rows are")
