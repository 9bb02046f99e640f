package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

const defaultPage = 50

// listed returns the query of a filter.
func listed(f deadletter.Filter) (letterQuery, error) {
	if f.State == "" {
		f.State = deadletter.StatePending
	}
	if !slices.Contains([]deadletter.State{deadletter.StatePending, deadletter.StateReplayed, deadletter.StateDiscarded,
		deadletter.StateAll}, f.State) {
		return letterQuery{}, fmt.Errorf("%w: state %q is none of pending, replayed, discarded, all", deadletter.ErrFilter,
			f.State)
	}
	if f.Source != "" && f.Source != deadletter.SourceJob && f.Source != deadletter.SourceEvent {
		return letterQuery{}, fmt.Errorf("%w: source %q is none of job, event", deadletter.ErrFilter, f.Source)
	}
	if err := checkAfter(f.After); err != nil {
		return letterQuery{}, err
	}
	if f.Limit <= 0 {
		f.Limit = defaultPage
	}
	return letterQuery{F: f, State: string(f.State), Limit: f.Limit}, nil
}

func checkAfter(after string) error {
	if _, err := uuid.Parse(after); after != "" && err != nil {
		return fmt.Errorf("%w: after is %q, want the id that the previous page ended with", deadletter.ErrFilter, after)
	}
	return nil
}

// collect runs a query of one of the dlq statements and returns its rows.
func collect[T any](ctx context.Context, tx pgx.Tx, name string, q letterQuery) ([]T, error) {
	sql, args, err := q.render(name)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByNameLax[T])
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
	err = d.inTx(ctx, f.Tenant, pgx.ReadOnly, func(tx pgx.Tx) (err error) {
		letters, err = collect[deadletter.Letter](ctx, tx, "dlq_list", q)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	if len(letters) == q.Limit {
		letters = letters[:q.Limit-1]
		next = letters[len(letters)-1].ID.String()
	}
	return dated(letters), next, nil
}

// Show returns the letter with this id, or those of the event or the job with this id, newest first.
func (d *deadLetters) Show(ctx context.Context, id uuid.UUID, tenant string) (letters []deadletter.Letter, err error) {
	err = d.inTx(ctx, tenant, pgx.ReadOnly, func(tx pgx.Tx) (err error) {
		letters, err = collect[deadletter.Letter](ctx, tx, "dlq_show",
			letterQuery{IDs: []uuid.UUID{id}, F: deadletter.Filter{Tenant: tenant}})
		return err
	})
	if err == nil && len(letters) == 0 {
		err = deadletter.ErrNoLetter
	}
	if err != nil {
		return nil, fmt.Errorf("show dead letter %s: %w", id, err)
	}
	return dated(letters), nil
}

func dated(letters []deadletter.Letter) []deadletter.Letter {
	for i := range letters {
		letters[i].At = uuid7.Time(letters[i].ID)
	}
	return letters
}

// Stats counts the letters that a filter matches, whatever their state, and groups those of the filter's state by the
// fingerprint of their error.
func (d *deadLetters) Stats(ctx context.Context, f deadletter.Filter) (deadletter.Stats, error) {
	q, err := listed(f)
	if err != nil {
		return deadletter.Stats{}, err
	}
	var stats deadletter.Stats
	type group struct {
		deadletter.Group
		OldestID, NewestID uuid.UUID // which contain the times
	}
	err = d.inTx(ctx, f.Tenant, pgx.ReadOnly, func(tx pgx.Tx) error {
		total := q
		total.State = string(deadletter.StateAll)
		sql, args, err := total.render("dlq_totals")
		if err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, sql, args...).Scan(&stats.Pending, &stats.Replayed, &stats.Discarded); err != nil {
			return err
		}
		groups, err := collect[group](ctx, tx, "dlq_groups", q)
		for _, g := range groups {
			g.Oldest, g.Newest = uuid7.Time(g.OldestID), uuid7.Time(g.NewestID)
			stats.Groups = append(stats.Groups, g.Group)
		}
		return err
	})
	if err != nil {
		return deadletter.Stats{}, fmt.Errorf("count dead letters: %w", err)
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
	err = pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		actions, err = collect[deadletter.Action](ctx, tx, "dlq_actions", q)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list actions: %w", err)
	}
	if len(actions) == q.Limit {
		actions = actions[:f.Limit]
		next = actions[f.Limit-1].ID.String()
	}
	return actions, next, nil
}
