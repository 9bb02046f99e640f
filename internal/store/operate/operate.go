package operate

import (
	"context"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/errortext"
)

// Browser shows the rows of an outbox table to people. It changes nothing, but for RetryNow, SkipPage and ReplayPage.
type Browser interface {
	// Statuses are those that a row can have, in the table's spelling.
	Statuses() []string
	// List returns rows, newest first, and what Filter.After must be for the next page, or "". A filter that does not
	// fit the table is an ErrFilter.
	List(ctx context.Context, f Filter) (rows []EventRow, next string, err error)
	// Show returns one event, by its id or by its position, of the tenant if one is named, with what sinks did not take
	// of it at once. By its id an event is found also while its row is gone and a sink has not taken it. None:
	// ErrNoEvent.
	Show(ctx context.Context, idOrPosition, tenant string) (EventDetail, error)
	// RetryNow makes events due that wait for their next attempt, and says how many; the relay takes them at its next
	// poll. What it did is recorded in outbox_audit, with who did it and why. A choice that does not fit the table is
	// an ErrFilter.
	RetryNow(ctx context.Context, s Selection, actor, reason string) (n int, err error)
	// Undelivered counts the events that a selection takes.
	Undelivered(ctx context.Context, s Selection) (int, error)
	// SkipPage makes undelivered events dead letters instead of delivering them, at most limit of a selection, the
	// oldest first, and says how many; 0 means that none is left. Rows, letters and the record in outbox_audit are one
	// transaction. A relay may be publishing such an event meanwhile. If its settle comes first, the event is delivered
	// and has no letter; else it has a letter, and may have arrived as well. It is never without both.
	SkipPage(ctx context.Context, s Selection, by Skip, limit int) (n int, err error)
	Replayer
	// Lanes reports on the table's lanes and relays. Undelivered rows are counted up to limit.
	Lanes(ctx context.Context, limit int) (LaneReport, error)
	// Backlog says whose the undelivered events are. What the table does not have is an ErrFilter.
	Backlog(ctx context.Context, q BacklogQuery) (Backlog, error)
}

// Skip says who skips events, and why.
type Skip struct {
	Actor, Reason string
	Run           uuid.UUID // the same for all pages of one action, for the record
}

// Failure is what the letters of the skipped events say.
func (s Skip) Failure() outbox.Failure {
	said := errortext.Fit("skipped by " + s.Actor + ": " + s.Reason)
	return outbox.Failure{Reason: outbox.ReasonDeliveryFailed, Error: said}
}
