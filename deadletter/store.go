package deadletter

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Store keeps dead letters and puts them back to work. Each store package has one. Every method is one transaction.
type Store interface {
	// List returns letters without their histories and payloads, newest first, and what Filter.After must be for the
	// next page, or "".
	List(ctx context.Context, f Filter) (letters []Letter, next string, err error)
	// Show returns the letter of that id, or all letters of the event or job of that id, newest first, of the tenant if
	// one is named. None: ErrNoLetter.
	Show(ctx context.Context, id uuid.UUID, tenant string) ([]Letter, error)
	// Stats counts letters by state, and those that the filter chooses by kind.
	Stats(ctx context.Context, f Filter) (Stats, error)
	// Count returns how many letters a selection takes.
	Count(ctx context.Context, s Selection) (int, error)
	// Preview looks at what a replay of the selection would do. window is the sink's duplicate window.
	Preview(ctx context.Context, s Selection, window time.Duration) (Preview, error)
	// Purgeable returns how many letters a purge would delete.
	Purgeable(ctx context.Context, p Purge) (int, error)

	ActionLister
	Replayer
	Discarder
	Purger
	Collector
}
