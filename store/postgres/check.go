package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

func (s *store) checkSchema(ctx context.Context) error {
	if err := pooler.CheckEncoding(ctx, s.pool.Pool); err != nil {
		return err
	}
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
	if err := pgschema.CheckVisible(ctx, s.pool.Pool, s.layout.Table); err != nil {
		return err
	}
	// Without the policy of a relay, its dead letters would be refused one by one. A role that may
	// not read dead letters stores none, or has a policy for that alone.
	lacks, err := pgschema.Lacking(ctx, s.pool.Pool, letterTable, []string{"SELECT", "INSERT"}, nil)
	if err != nil || len(lacks) > 0 {
		return err
	}
	return pgschema.CheckVisible(ctx, s.pool.Pool, letterTable)
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
		{"record the table's reader in", "outbox_readers", []string{"SELECT", "INSERT"}},
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

// Types that the parts of a layout take. A part that is not listed takes any type.
var (
	integerTypes = []string{"bigint", "integer", "smallint"}
	timeTypes    = []string{"timestamp with time zone", "timestamp without time zone"}
	jsonTypes    = []string{"json", "jsonb"}
	columnTypes  = map[string][]string{
		"id": {"uuid"}, "time_id": {"uuid"}, "app": {"uuid"}, "position": integerTypes, "sequence": integerTypes,
		"schema_version": integerTypes, "attempts": integerTypes, "generation": integerTypes[1:], // fits the letters'
		"payload": jsonTypes, "metadata": jsonTypes, "destinations": jsonTypes, "delivered_to": {"jsonb"},
		"error_history": {"jsonb"}, "occurred_at": timeTypes, "written_at": timeTypes, "delivered_at": timeTypes,
		"next_retry_at": timeTypes,
	}
)

// checkTypes compares the columns with what the layout promises. Without this check a text that is
// not JSON would be published, a settle that compares a text with a uuid would fail after the first
// publish, and a row without a position would never be delivered.
func (s *store) checkTypes(ctx context.Context) error {
	sql, err := plain("check_types")
	if err != nil {
		return err
	}
	rows, err := s.pool.Query(ctx, sql, pgtable.QuoteTable(s.layout.Table))
	if err != nil {
		return fmt.Errorf("check columns of %s: %w", s.layout.Table, err)
	}
	var lacks []string
	var column, declared, base string
	var nullable bool
	_, err = pgx.ForEachRow(rows, []any{&column, &declared, &base, &nullable}, func() error {
		for part, name := range s.layout.Columns() {
			if want := columnTypes[part]; name == column && want != nil && !slices.Contains(want, base) {
				lacks = append(lacks, fmt.Sprintf("type %s of column %q (%s), which is %s",
					strings.Join(want, " or "), column, part, declared))
			}
		}
		if nullable && (column == s.layout.ID || column == s.layout.Position) {
			lacks = append(lacks, "NOT NULL on "+column)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("check columns of %s: %w", s.layout.Table, err)
	}
	if len(lacks) > 0 {
		slices.Sort(lacks)
		return &outbox.SchemaError{Table: s.layout.Table, Missing: lacks, Remedy: "change it with ALTER TABLE ... " +
			"ALTER COLUMN ... TYPE ... USING or SET NOT NULL, or name another column in the layout"}
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
