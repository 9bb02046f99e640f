package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Watch implements outbox.Database with one statement for all tables.
func (d served) Watch(stores []outbox.Store) (func(context.Context, []bool) ([]outbox.Watched, error), error) {
	pool, err := newSessions(d.pool)
	if err != nil {
		return nil, err
	}
	var parts, names, of []string
	for i, opened := range stores {
		s, ok := opened.(watched)
		if !ok {
			return nil, fmt.Errorf("a %T is no table of this database", opened)
		}
		part, whose, err := s.Watch(i + 1)
		if err != nil {
			return nil, err
		}
		parts, names, of = append(parts, part), append(names, s.LeaseName()), append(of, whose)
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

// watched is a table of this database that a relay serves.
type watched interface {
	outbox.DeliveryStore
	// Watch returns the part of the statement for the table of a number, from 1, and the name of
	// the table whose events it has.
	Watch(number int) (sql, of string, err error)
}

// Watch implements watched.
func (s *store) Watch(number int) (sql, of string, err error) {
	sql, err = files.Statement("watch", pgtable.Watched{Layout: pgtable.Quote(s.layout), Number: number})
	return sql, s.of, err
}
