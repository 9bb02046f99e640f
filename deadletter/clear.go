package deadletter

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const clearLetters = 1000 // a transaction of Discard and Purge

// Discard marks letters as not to be replayed. It deletes nothing: a discarded letter can be seen,
// and replayed by its id. When ctx ends it returns how many it marked so far.
func Discard(ctx context.Context, store Store, selection Selection, by Operator) (int, error) {
	if strings.TrimSpace(by.Reason) == "" {
		return 0, ErrNoReason
	}
	if err := selection.check(); err != nil {
		return 0, fmt.Errorf("discard: %w", err)
	}
	return pages(ctx, "discard", func(ctx context.Context) (int, error) {
		return store.DiscardPage(ctx, selection, by, clearLetters)
	})
}

// DiscardSet is Discard for the letters of a set.
func DiscardSet(ctx context.Context, store Store, set Set, by Operator) (sum int, err error) {
	for left := set.Letters; len(left) > 0; {
		var page []Frozen
		page, left = cut(left, clearLetters)
		s := set.Selection
		s.IDs = ids(page)
		n, err := Discard(ctx, store, s, by)
		if sum += n; err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// Purge says which letters to delete.
type Purge struct {
	// Since they were replayed, by the database's clock; purge_job_dlq's default is 30 days.
	OlderThan time.Duration `json:"older_than"`
	Discarded bool          `json:"discarded,omitempty"` // also those discarded that long ago
	Tenant    string        `json:"tenant,omitempty"`    // of this one only
}

// Run deletes the letters, in bounded batches, and returns how many. When ctx ends it stops between
// two. Pending letters are never deleted.
func (p Purge) Run(ctx context.Context, store Store, by Operator) (int, error) {
	if p.OlderThan < 0 {
		return 0, fmt.Errorf("%w: letters cannot be younger than now", ErrFilter)
	}
	return pages(ctx, "purge", func(ctx context.Context) (int, error) { return store.PurgePage(ctx, p, by, clearLetters) })
}

// pages calls page until it has nothing left to do or ctx ends.
func pages(ctx context.Context, verb string, page func(context.Context) (int, error)) (sum int, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return sum, fmt.Errorf("%s: %w", verb, err)
		}
		n, err := finish(ctx, page)
		if err != nil {
			return sum, fmt.Errorf("%s: %w", verb, err)
		}
		if sum += n; n == 0 {
			return sum, nil
		}
	}
}

// finish runs a page to its end, also if ctx ends meanwhile.
func finish(ctx context.Context, page func(context.Context) (int, error)) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pageLimit)
	defer cancel()
	return page(ctx)
}
