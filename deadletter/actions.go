package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
)

// Actions returns a page of the record with one entry for each action, newest first, and what
// ActionFilter.After must be for the next page, or "". The entries that an action wrote one after
// the other, one a transaction, are summed up in the newest. They are those that name the same run
// in their detail and have nobody else's between them.
func Actions(ctx context.Context, store Store, f ActionFilter) (actions []Action, next string, err error) {
	limit := cmp.Or(f.Limit, 50)
	f.Limit = max(limit, 100)
	run, last := "", "" // of the action that is being summed up, and its oldest entry's id
	for {
		entries, more, err := store.Actions(ctx, f)
		if err != nil {
			return nil, "", err
		}
		for _, e := range entries {
			if r := runOf(e); len(actions) > 0 && r != "" && r == run {
				actions[len(actions)-1].Letters += e.Letters
			} else if len(actions) == limit {
				return actions, last, nil
			} else {
				actions, run = append(actions, e), r
			}
			last = e.ID.String()
		}
		if more == "" {
			return actions, "", nil
		}
		f.After = more
	}
}

func runOf(e Action) string {
	var detail struct{ Run string }
	if json.Unmarshal(e.Detail, &detail) != nil {
		return ""
	}
	return detail.Run
}
