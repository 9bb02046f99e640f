package deadletter

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Store keeps dead letters and puts them back to work. Each store package has one. Every method is
// one transaction.
type Store interface {
	// List returns letters without their histories and payloads, newest first, and what
	// Filter.After must be for the next page, or "".
	List(ctx context.Context, f Filter) (letters []Letter, next string, err error)
	// Show returns the letter of that id, or all letters of the event or job of that id, newest
	// first, of the tenant if one is named. None: ErrNoLetter.
	Show(ctx context.Context, id uuid.UUID, tenant string) ([]Letter, error)
	// Stats counts letters by state, and those that the filter chooses by kind.
	Stats(ctx context.Context, f Filter) (Stats, error)
	// Count returns how many letters a selection takes.
	Count(ctx context.Context, s Selection) (int, error)
	// Preview looks at what a replay of the selection would do. window is the sink's duplicate
	// window.
	Preview(ctx context.Context, s Selection, window time.Duration) (Preview, error)
	// Freeze returns the letters that a replay of the selection would take, in its order, at most
	// limit of them.
	Freeze(ctx context.Context, s Selection, limit int) ([]Frozen, error)
	// Became says how far the events of replayed letters have come, of the tenant if one is named.
	// Those of tables that the store does not know, and jobs, count as delivered.
	Became(ctx context.Context, ids []uuid.UUID, tenant string) (Became, error)
	// Purgeable returns how many letters a purge would delete.
	Purgeable(ctx context.Context, p Purge) (int, error)

	// Actions returns entries of the record of what operators did, newest first, and what
	// ActionFilter.After must be for the next page, or "".
	Actions(ctx context.Context, f ActionFilter) (actions []Action, next string, err error)
	// ReplayPage puts the letters of one page back to work.
	ReplayPage(ctx context.Context, request ReplayRequest) (ReplayPage, error)
	// DiscardPage marks pending letters as discarded and returns how many; 0 means that none is
	// left.
	DiscardPage(ctx context.Context, selection Selection, by Operator, limit int) (int, error)
	// PurgePage deletes letters that nobody waits for and returns how many; 0 means that none is
	// left.
	PurgePage(ctx context.Context, purge Purge, by Operator, limit int) (int, error)
	// CollectPage writes letters of a table's dead events that have none and returns how many; 0
	// means that none is left. A table whose dead rows leave it has none.
	CollectPage(ctx context.Context, table string, by Operator, limit int) (int, error)
}
