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

// Browser shows the rows of an outbox table to people. It changes nothing, but for RetryNow.
type Browser interface {
	// Statuses are those that a row can have, in the table's spelling.
	Statuses() []string
	// List returns rows, newest first, and what Filter.After must be for the next page, or "". A filter that does not fit the table is an ErrFilter.
	List(ctx context.Context, f Filter) (rows []EventRow, next string, err error)
	// Show returns one event, by its id or by its position, of the tenant if one is named. None: ErrNoEvent.
	Show(ctx context.Context, idOrPosition, tenant string) (EventDetail, error)
	// RetryNow makes events due that wait for their next attempt, and says how many; the relay takes them at its next poll. What it did is recorded in
	// outbox_audit, with who did it and why. A choice that does not fit the table is an ErrFilter.
	RetryNow(ctx context.Context, w Waiting, actor, reason string) (n int, err error)
	// Lanes reports on the table's lanes and relays. Undelivered rows are counted up to limit.
	Lanes(ctx context.Context, limit int) (LaneReport, error)
}
