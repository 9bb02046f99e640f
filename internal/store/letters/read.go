package letters

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

const defaultPage = 50

// listed returns the query of a filter.
func listed(f deadletter.Filter) (*Query, error) {
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
	return (&Query{F: f, State: string(f.State), Limit: f.Limit}).filled(), nil
}

func checkAfter(after string) error {
	if _, err := uuid.Parse(after); after != "" && err != nil {
		return fmt.Errorf("%w: after is %q, want the id that the previous page ended with", deadletter.ErrFilter, after)
	}
	return nil
}

// List returns a page of letters, newest first, and where the next page starts, or "" after the
// last.
func (d *Store) List(
	ctx context.Context, f deadletter.Filter,
) (letters []deadletter.Letter, next string, err error) {
	q, err := listed(f)
	if err != nil {
		return nil, "", err
	}
	q.Limit++ // the one too many says that there is a next page
	err = d.read(ctx, f.Tenant, func(tx *cold.Tx) (err error) {
		letters, err = list(ctx, tx, "dlq_list", q)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	if len(letters) == q.Limit {
		letters = letters[:q.Limit-1]
		next = letters[len(letters)-1].ID.String()
	}
	return letters, next, nil
}

// Show returns the letter with this id, or those of the event or the job with this id, newest
// first, of the tenant if one is named.
func (d *Store) Show(ctx context.Context, id uuid.UUID, tenant string) (letters []deadletter.Letter, err error) {
	err = d.read(ctx, tenant, func(tx *cold.Tx) (err error) {
		letters, err = list(ctx, tx, "dlq_show", &Query{IDs: []uuid.UUID{id}, F: deadletter.Filter{Tenant: tenant}})
		return err
	})
	if err == nil && len(letters) == 0 {
		err = deadletter.ErrNoLetter
	}
	if err != nil {
		return nil, fmt.Errorf("show dead letter %s: %w", id, err)
	}
	return letters, nil
}

// list runs a statement that returns letters.
func list(ctx context.Context, tx *cold.Tx, name string, q *Query) (all []deadletter.Letter, err error) {
	err = tx.Each(ctx, name, q, func(rows cold.Rows) error {
		var l deadletter.Letter
		var user, request uuid.NullUUID
		var replayed, discarded, history, payload sqltable.Text
		if err := rows.Scan(&l.ID, &l.Source, &l.OriginalID, &l.Tenant, &l.State, &user, &request, &l.Type, &l.Reason,
			&l.Attempts, &l.LastError, &l.Fingerprint, &l.Table, &l.Destination, &l.Key, &l.Position, &l.Generation,
			&replayed, &discarded, &l.DiscardReason, &history, &payload); err != nil {
			return err
		}
		if user.Valid {
			l.UserID = &user.UUID
		}
		if request.Valid {
			l.RequestID = &request.UUID
		}
		l.ReplayedAt, l.DiscardedAt = replayed.Moment(), discarded.Moment()
		l.At, l.ErrorHistory, l.Payload = uuid7.Time(l.ID), history.JSON(), payload.JSON()
		all = append(all, l)
		return nil
	})
	return all, err
}

// Stats counts the letters that a filter matches, whatever their state, and groups those of the
// filter's state by the fingerprint of their error.
func (d *Store) Stats(ctx context.Context, f deadletter.Filter) (deadletter.Stats, error) {
	q, err := listed(f)
	if err != nil {
		return deadletter.Stats{}, err
	}
	total := *q
	total.State = string(deadletter.StateAll)
	var stats deadletter.Stats
	err = d.read(ctx, f.Tenant, func(tx *cold.Tx) error {
		err := tx.One(ctx, "dlq_totals", &total, &stats.Pending, &stats.Replayed, &stats.Discarded)
		if err != nil {
			return err
		}
		return tx.Each(ctx, "dlq_groups", q, func(rows cold.Rows) error {
			var g deadletter.Group
			var oldest, newest uuid.UUID // which contain the times
			var types sqltable.Text
			if err := rows.Scan(&g.Fingerprint, &g.Count, &stats.AllGroups, &oldest, &newest, &g.Sample, &types); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(types.S), &g.Types); err != nil {
				return err
			}
			g.Oldest, g.Newest = uuid7.Time(oldest), uuid7.Time(newest)
			stats.Groups = append(stats.Groups, g)
			return nil
		})
	})
	if err != nil {
		return deadletter.Stats{}, fmt.Errorf("count dead letters: %w", err)
	}
	return stats, nil
}

// Actions returns a page of what operators did, newest first, and where the next page starts, or ""
// after the last.
func (d *Store) Actions(
	ctx context.Context, f deadletter.ActionFilter,
) (actions []deadletter.Action, next string, err error) {
	if err := checkAfter(f.After); err != nil {
		return nil, "", err
	}
	if f.Limit <= 0 {
		f.Limit = defaultPage
	}
	err = cold.Read(ctx, d.db, func(tx *cold.Tx) error {
		return tx.Each(ctx, "dlq_actions", &Query{A: f, Limit: f.Limit + 1}, func(rows cold.Rows) error {
			var a deadletter.Action
			var at, filter, detail sqltable.Text
			err := rows.Scan(&a.ID, &at, &a.Actor, &a.Action, &a.Letters, &filter, &a.Reason, &detail, &a.Login)
			if moment := at.Moment(); moment != nil {
				a.At = *moment
			}
			a.Filter, a.Detail = filter.JSON(), detail.JSON()
			actions = append(actions, a)
			return err
		})
	})
	if err != nil {
		return nil, "", fmt.Errorf("list actions: %w", err)
	}
	if len(actions) > f.Limit {
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

func chosen(ctx context.Context, tx *cold.Tx, q *Query) (all []chosenTable, err error) {
	err = tx.Each(ctx, "dlq_tables", q, func(rows cold.Rows) error {
		var t chosenTable
		defer func() { all = append(all, t) }()
		return rows.Scan(&t.source, &t.table, &t.letters, &t.old)
	})
	return all, err
}

// Count returns how many letters a selection takes.
func (d *Store) Count(ctx context.Context, s deadletter.Selection) (n int, err error) {
	q, err := selected(s)
	if err != nil {
		return 0, err
	}
	err = d.read(ctx, s.Tenant, func(tx *cold.Tx) error {
		n = 0
		found, err := chosen(ctx, tx, q)
		for _, f := range found {
			n += f.letters
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// Preview looks at what a replay of the selection would do. window is the sink's duplicate window.
func (d *Store) Preview(
	ctx context.Context, s deadletter.Selection, window time.Duration,
) (p deadletter.Preview, err error) {
	q, err := selected(s)
	if err != nil {
		return p, err
	}
	q.Cut = time.Now().Add(-window)
	err = d.read(ctx, s.Tenant, func(tx *cold.Tx) error {
		found, err := chosen(ctx, tx, q.filled())
		if err != nil {
			return err
		}
		for _, f := range found {
			p.Letters += f.letters
			p.OutsideWindow += f.old
			part := deadletter.PreviewTable{Table: f.table, Letters: f.letters, Stuck: f.letters}
			if t, known := d.tables[f.table]; known && d.visible(t, s.Tenant) {
				if err := order(ctx, tx, &part, t.query(*q)); err != nil {
					return fmt.Errorf("look into %s: %w", f.table, err)
				}
			} else if f.source == deadletter.SourceJob && d.jobs != nil {
				part.Stuck = 0
			}
			p.Tables = append(p.Tables, part)
		}
		return nil
	})
	if err != nil {
		return deadletter.Preview{}, fmt.Errorf("preview replay: %w", err)
	}
	return p, nil
}

// visible tells whether the rows of a table can be seen, as the tenant if one is named.
func (d *Store) visible(t table, tenant string) bool { return !t.hidden || d.hidden && tenant != "" }

// order says which keys a replay would put out of order.
func order(ctx context.Context, tx *cold.Tx, p *deadletter.PreviewTable, q *Query) error {
	var overtaken, racing, behind sqltable.Text // JSON arrays
	err := tx.One(ctx, "dlq_order", q, &p.Stuck, &p.Overtaken.Count, &overtaken, &p.Racing.Count, &racing,
		&p.LeftBehind.Count, &behind)
	if err != nil {
		return err
	}
	for keys, text := range map[*deadletter.Keys]sqltable.Text{
		&p.Overtaken: overtaken, &p.Racing: racing, &p.LeftBehind: behind,
	} {
		if err := json.Unmarshal([]byte(text.S), &keys.First); err != nil {
			return fmt.Errorf("read names of keys: %w", err)
		}
	}
	return nil
}
