package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

func (s *store) checkSchema(ctx context.Context) error {
	own := sqltable.Needed{Table: s.layout.Table, Columns: sqltable.Names(s.layout)}
	for _, t := range append([]sqltable.Needed{own}, sqltable.Beside...) {
		if err := pgschema.CheckTable(ctx, s.pool.Pool, t.Table, t.Columns); err != nil {
			return err
		}
	}
	if s.layout.Settle == outbox.SettleArchive {
		if err := checkArchive(ctx, s.pool.Pool); err != nil {
			return err
		}
	}
	if err := checkAllowed(ctx, s.pool.Pool, s.layout); err != nil {
		return err
	}
	if err := pgschema.CheckWritable(ctx, s.pool.Pool); err != nil {
		return err
	}
	return pgschema.CheckVisible(ctx, s.pool.Pool, s.layout.Table)
}

// checkAllowed finds out whether this role may read the table and write down what became of its
// events. Tables of the migration sets are granted by roles.sql; nobody but their owner can grant a
// mapped one.
func checkAllowed(ctx context.Context, pool *pgxpool.Pool, l outbox.Layout) error {
	var sets []string
	for _, c := range []string{l.Status, l.DeliveredAt, l.Attempts, l.NextRetryAt, l.LastError, l.ErrorHistory,
		l.DeliveredTo} {
		if c != "" {
			sets = append(sets, c)
		}
	}
	needs := []string{"SELECT"}
	if l.KeepsState() && l.Status == "" || l.Settle.Removes() { // dead or delivered rows leave the table
		needs = append(needs, "DELETE")
	}
	return pgschema.CheckAllowed(ctx, pool, "serve table", l.Table, needs, sets...)
}

// checkSettles finds out which right or table a settle lacks. That is what is checked at the start,
// and what only some settles write: letters, and what sinks owe. A relay without those needs no
// right to them.
func (s *store) checkSettles(ctx context.Context) error {
	if err := s.checkSchema(ctx); err != nil {
		return err
	}
	for _, t := range []struct {
		purpose, table string
		needs          []string
	}{
		{"hold leases in", "outbox_lanes", []string{"SELECT", "UPDATE"}},
		{"hold leases in", "outbox_relays", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{"keep dead letters in", letterTable, []string{"INSERT"}},
		{"name the applications of dead letters in", "apps", []string{"SELECT", "INSERT"}},
		{"keep what sinks owe in", outbox.DeliveriesOf("", "").Table, []string{"INSERT"}},
	} {
		err := pgschema.CheckTable(ctx, s.pool.Pool, t.table, nil)
		if missing := (*outbox.SchemaError)(nil); errors.As(err, &missing) {
			continue // checkSchema knows which must be there
		}
		if err == nil {
			err = pgschema.CheckAllowed(ctx, s.pool.Pool, t.purpose, t.table, t.needs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkArchive finds out whether delivered rows can go into outbox_archive.
func checkArchive(ctx context.Context, pool *pgxpool.Pool) error {
	archive := sqltable.Archive
	if err := pgschema.CheckTable(ctx, pool, archive.Table, archive.Columns); err != nil {
		return err
	}
	return pgschema.CheckAllowed(ctx, pool, "archive delivered rows in", archive.Table, []string{"INSERT"})
}

// checkTypes finds columns of a mapped table that cannot play their part. Otherwise it would turn
// out after the first publish. A settle that compares a text with a uuid fails for ever, and a row
// without a position is never delivered and nobody is told.
func (s *store) checkTypes(ctx context.Context) error {
	sql, err := plain("check_nullable")
	if err != nil {
		return err
	}
	rows, err := s.pool.Query(ctx, sql, pgtable.QuoteTable(s.layout.Table), []string{s.layout.ID, s.layout.Position})
	if err != nil {
		return fmt.Errorf("check columns of %s: %w", s.layout.Table, err)
	}
	nullable, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("check columns of %s: %w", s.layout.Table, err)
	}
	if len(nullable) > 0 {
		return &outbox.SchemaError{Table: s.layout.Table, Missing: []string{"NOT NULL on " + strings.Join(nullable, " and ")},
			Remedy: "a row without it could not be delivered: ALTER TABLE … ALTER COLUMN … SET NOT NULL"}
	}
	return nil
}

// checkStatements has the server check them: a column of a mapped table may not be of the type that
// its part asks for.
func (s *store) checkStatements(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("check statements for %s: %w", s.layout.Table, err)
	}
	defer conn.Release()
	statements := []string{s.sql.claim, s.sql.settle.delivered, s.sql.settlePlaced.delivered, s.sql.settle.retry,
		s.sql.settle.dead, s.sql.backlog}
	if s.layout.Settle.Removes() {
		statements = append(statements, s.sql.settle.remove, s.sql.settlePlaced.remove)
	}
	for _, sql := range statements {
		if _, err := conn.Conn().Prepare(ctx, "", sql); err != nil {
			return fmt.Errorf("check statements for %s, a column is not of the type that its part in the layout asks for: %w",
				s.layout.Table, err)
		}
	}
	return nil
}
