package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
)

// Watch implements outbox.Database with one statement for all tables.
func (d served) Watch(stores []outbox.Store) (func(context.Context, []bool) ([]outbox.Watched, error), error) {
	pool, err := newSessions(d.pool)
	if err != nil {
		return nil, err
	}
	var parts, names, of []string
	for i, opened := range stores {
		s, ok := opened.(*store)
		if log, is := opened.(*logStore); is {
			s, ok = log.store, true
		}
		if !ok {
			return nil, fmt.Errorf("a %T is no table of this database", opened)
		}
		part, err := watchSQL(s.layout, i+1)
		if err != nil {
			return nil, err
		}
		parts, names, of = append(parts, part), append(names, s.name), append(of, s.of)
	}
	sql := strings.Join(parts, "\nUNION ALL\n")
	return func(ctx context.Context, busy []bool) ([]outbox.Watched, error) {
		rows, err := pool.Query(ctx, sql, names, of, busy)
		if err != nil {
			return nil, fmt.Errorf("look at the tables: %w", err)
		}
		seen := make([]outbox.Watched, len(stores))
		var number int
		var one outbox.Watched
		if _, err := pgx.ForEachRow(rows, []any{&number, &one.Undelivered, &one.Leases}, func() error {
			seen[number-1] = one
			return nil
		}); err != nil {
			return nil, fmt.Errorf("look at the tables: %w", err)
		}
		return seen, nil
	}, nil
}

// watchSQL returns the statement for the table of a number, from 1.
func watchSQL(l outbox.Layout, number int) (string, error) {
	t, err := parseSQL()
	if err != nil {
		return "", err
	}
	return t.Statement("watch", struct {
		quotedLayout
		Number int
	}{quote(l), number})
}
