package tables

import (
	"context"

	"github.com/outboxrelay/outbox"
)

// Store is what a relay and its watchers ask of a table.
type Store interface {
	outbox.Store
	// Backlog counts undelivered rows up to limit.
	Backlog(ctx context.Context, limit int) (Backlog, error)
}

// Browser reads the rows of an outbox table for people, and changes nothing.
type Browser interface {
	// Statuses are those that a row can have, in the table's spelling.
	Statuses() []string
	// List returns rows, newest first, and what Filter.After must be for the next page, or "". A filter that does not fit the table is an ErrFilter.
	List(ctx context.Context, f Filter) (rows []EventRow, next string, err error)
	// Show returns one event, by its id or by its position, of the tenant if one is named. None: ErrNoEvent.
	Show(ctx context.Context, idOrPosition, tenant string) (EventDetail, error)
	// Lanes reports on the table's lanes and relays. Undelivered rows are counted up to limit.
	Lanes(ctx context.Context, limit int) (LaneReport, error)
}
