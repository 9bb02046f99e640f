package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

const defaultPage = 50

// listed returns the query of a filter.
func listed(f deadletter.Filter) (*letterQuery, error) {
	if f.State == "" {
		f.State = deadletter.StatePending
	}
	if !slices.Contains([]deadletter.State{deadletter.StatePending, deadletter.StateReplayed, deadletter.StateDiscarded,
		deadletter.StateAll}, f.State) {
		return nil, fmt.Errorf("%w: state %q is none of pending, replayed, discarded, all", deadletter.ErrFilter, f.State)
	}
	if f.Source != "" && f.Source != deadletter.SourceJob && f.Source != deadletter.SourceEvent {
		return nil, fmt.Errorf("%w: source %q is none of job, event", deadletter.ErrFilter, f.Source)
	}
	if err := checkAfter(f.After); err != nil {
		return nil, err
	}
	if f.Limit <= 0 {
		f.Limit = defaultPage
	}
	return &letterQuery{F: f, State: string(f.State), Limit: f.Limit}, nil
}

func checkAfter(after string) error {
	if _, err := uuid.Parse(after); after != "" && err != nil {
		return fmt.Errorf("%w: after is %q, want the id that the previous page ended with", deadletter.ErrFilter, after)
	}
	return nil
}

// List returns a page of letters, newest first, and where the next page starts, or "" after the last.
func (d *deadLetters) List(
	ctx context.Context, f deadletter.Filter,
) (letters []deadletter.Letter, next string, err error) {
	q, err := listed(f)
	if err != nil {
		return nil, "", err
	}
	q.Limit++ // the one too many says that there is a next page
	err = d.db.snapshot(ctx, func(tx *sql.Tx) (err error) {
		letters, err = q.letters(ctx, tx, "dlq_list")
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", explain(err))
	}
	if len(letters) == q.Limit {
		letters = letters[:q.Limit-1]
		next = letters[len(letters)-1].ID.String()
	}
	return letters, next, nil
}

// Show returns the letter with this id, or those of the event or the job with this id, newest first, of the tenant if
// one is named.
func (d *deadLetters) Show(ctx context.Context, id uuid.UUID, tenant string) (letters []deadletter.Letter, err error) {
	q := letterQuery{IDs: []uuid.UUID{id}, F: deadletter.Filter{Tenant: tenant}}
	err = d.db.snapshot(ctx, func(tx *sql.Tx) (err error) {
		letters, err = q.letters(ctx, tx, "dlq_show")
		return err
	})
	if err == nil && len(letters) == 0 {
		err = deadletter.ErrNoLetter
	}
	if err != nil {
		return nil, fmt.Errorf("show dead letter %s: %w", id, explain(err))
	}
	return letters, nil
}

// letters runs a statement that returns letters.
func (q *letterQuery) letters(ctx context.Context, tx *sql.Tx, name string) (all []deadletter.Letter, err error) {
	err = q.each(ctx, tx, name, func(rows *sql.Rows) error {
		var l deadletter.Letter
		var user, request uuid.NullUUID
		var replayed, discarded sql.NullString
		var history, payload sqlitetable.Text
		if err := rows.Scan(&l.ID, &l.Source, &l.OriginalID, &l.Tenant, &l.State, &user, &request, &l.Type, &l.Reason,
			&l.Attempts, &l.LastError, &l.Fingerprint,
			&l.Table, &l.Destination, &l.Key, &l.Position, &l.Generation, &replayed, &discarded, &l.DiscardReason, &history,
			&payload); err != nil {
			return err
		}
		if user.Valid {
			l.UserID = &user.UUID
		}
		if request.Valid {
			l.RequestID = &request.UUID
		}
		if l.ReplayedAt, err = timePointer(replayed); err != nil {
			return err
		}
		if l.DiscardedAt, err = timePointer(discarded); err != nil {
			return err
		}
		l.At, l.ErrorHistory, l.Payload = uuid7.Time(l.ID), history.JSON(), payload.JSON()
		all = append(all, l)
		return nil
	})
	return all, err
}

// Stats counts the letters that a filter matches, whatever their state, and groups those of the filter's state by the
// fingerprint of their error.
func (d *deadLetters) Stats(ctx context.Context, f deadletter.Filter) (deadletter.Stats, error) {
	q, err := listed(f)
	if err != nil {
		return deadletter.Stats{}, err
	}
	total := *q
	total.State = string(deadletter.StateAll)
	var stats deadletter.Stats
	err = d.db.snapshot(ctx, func(tx *sql.Tx) error {
		if err := total.each(ctx, tx, "dlq_totals", func(rows *sql.Rows) error {
			return rows.Scan(&stats.Pending, &stats.Replayed, &stats.Discarded)
		}); err != nil {
			return err
		}
		return q.each(ctx, tx, "dlq_groups", func(rows *sql.Rows) error {
			var g deadletter.Group
			var oldest, newest uuid.UUID // which contain the times
			if err := rows.Scan(&g.Fingerprint, &g.Source, &g.Reason, &g.Type, &g.Count, &oldest, &newest,
				&g.Sample); err != nil {
				return err
			}
			g.Oldest, g.Newest = uuid7.Time(oldest), uuid7.Time(newest)
			stats.Groups = append(stats.Groups, g)
			return nil
		})
	})
	if err != nil {
		return deadletter.Stats{}, fmt.Errorf("count dead letters: %w", explain(err))
	}
	return stats, nil
}

// Actions returns a page of what operators did, newest first, and where the next page starts, or "" after the last.
func (d *deadLetters) Actions(
	ctx context.Context, f deadletter.ActionFilter,
) (actions []deadletter.Action, next string, err error) {
	if err := checkAfter(f.After); err != nil {
		return nil, "", err
	}
	if f.Limit <= 0 {
		f.Limit = defaultPage
	}
	q := letterQuery{A: f, Limit: f.Limit + 1}
	err = d.db.snapshot(ctx, func(tx *sql.Tx) error {
		return q.each(ctx, tx, "dlq_actions", func(rows *sql.Rows) error {
			var a deadletter.Action
			var at string
			var filter, detail sqlitetable.Text
			err := rows.Scan(&a.ID, &at, &a.Actor, &a.Action, &a.Letters, &filter, &a.Reason, &detail, &a.Login)
			if err != nil {
				return err
			}
			a.Filter, a.Detail = filter.JSON(), detail.JSON()
			if a.At, err = parseTime(at); err != nil {
				return err
			}
			actions = append(actions, a)
			return nil
		})
	})
	if err != nil {
		return nil, "", fmt.Errorf("list actions: %w", explain(err))
	}
	if len(actions) == q.Limit {
		actions = actions[:f.Limit]
		next = actions[f.Limit-1].ID.String()
	}
	return actions, next, nil
}

// chosenTable is the letters of one table that a replay would take, and how many of them are old.
type chosenTable struct {
	source       deadletter.Source
	table        string
	letters, old int
}

func (q *letterQuery) chosen(ctx context.Context, tx *sql.Tx, cut time.Time) (all []chosenTable, err error) {
	q.Cut = cut
	err = q.each(ctx, tx, "dlq_tables", func(rows *sql.Rows) error {
		var t chosenTable
		defer func() { all = append(all, t) }()
		return rows.Scan(&t.source, &t.table, &t.letters, &t.old)
	})
	return all, err
}

// Count returns how many letters a selection takes.
func (d *deadLetters) Count(ctx context.Context, s deadletter.Selection) (n int, err error) {
	q, err := selected(s)
	if err != nil {
		return 0, err
	}
	err = d.db.snapshot(ctx, func(tx *sql.Tx) error {
		found, err := q.chosen(ctx, tx, time.Time{})
		for _, f := range found {
			n += f.letters
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w", explain(err))
	}
	return n, nil
}
