package deadletter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
)

// entries is a record, newest first. Its place is the id of the last entry of a page.
type entries struct {
	deadletter.Store
	list []deadletter.Action
}

func (r entries) Actions(_ context.Context, f deadletter.ActionFilter) ([]deadletter.Action, string, error) {
	from := 0
	if f.After != "" {
		from = 1 + slices.IndexFunc(r.list, func(a deadletter.Action) bool { return a.ID.String() == f.After })
	}
	to := min(from+f.Limit, len(r.list))
	if to == len(r.list) {
		return r.list[from:to], "", nil
	}
	return r.list[from:to], r.list[to-1].ID.String(), nil
}

func TestActionsAreOneEntryEach(t *testing.T) {
	var record entries
	add := func(run string, n int) {
		for range n {
			record.list = append(record.list, deadletter.Action{ID: uuid.New(), Letters: 10, Detail: json.RawMessage(run)})
		}
	}
	add(`{"run": "a"}`, 250)
	add(``, 2)
	add(`{"run": "b"}`, 1)
	add(`{"table": "t"}`, 2)
	add(`{"run": "a"}`, 1) // somebody else's are between
	want := "[2500 10 10 10 10 10 10]"
	for _, limit := range []int{1, 2, 3, 7, 50} {
		var sums []int
		for after, more := "", true; more; more = after != "" {
			page, next, err := deadletter.Actions(t.Context(), record, deadletter.ActionFilter{Limit: limit, After: after})
			if err != nil || len(page) > limit || len(page) == 0 {
				t.Fatalf("a page of %d, error %v, want at most %d", len(page), err, limit)
			}
			for _, a := range page {
				sums = append(sums, a.Letters)
			}
			after = next
		}
		if fmt.Sprint(sums) != want {
			t.Errorf("in pages of %d: %v, want %s", limit, sums, want)
		}
	}
}
