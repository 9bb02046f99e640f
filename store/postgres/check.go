package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/tables"
)

func (s *store) checkSchema(ctx context.Context) error {
	var columns []string
	for _, c := range s.layout.Columns() {
		columns = append(columns, c)
	}
	for _, t := range []struct {
		table   string
		columns []string
	}{
		{s.layout.Table, columns},
		{"outbox_lanes", []string{"owner", "epoch", "expires_at", "crashes", "trial_size", "trial_event"}},
		{"outbox_relays", []string{"owner", "name", "expires_at"}},
		{"job_dlq", []string{"destination", "outbox_table", "event_key", "generation", "position", "origin"}},
		{"apps", []string{"namespace"}},
		{"outbox_pauses", []string{"destination"}},
	} {
		if err := checkTable(ctx, s.pool.Pool, t.table, t.columns); err != nil {
			return err
		}
	}
	if err := checkAllowed(ctx, s.pool.Pool, s.layout); err != nil {
		return err
	}
	return checkVisible(ctx, s.pool.Pool, s.layout)
}

func checkTable(ctx context.Context, pool *pgxpool.Pool, table string, columns []string) error {
	sql, err := plain("check_columns")
	if err != nil {
		return err
	}
	have, err := pool.Query(ctx, sql, quoteTable(table))
	if err != nil {
		return fmt.Errorf("check table %s: %w", table, err)
	}
	names, err := pgx.CollectRows(have, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("check table %s: %w", table, err)
	}
	remedy := "add the columns or correct the layout"
	if len(names) == 0 {
		remedy = "make it or correct its name in the layout"
	}
	if set, ok := tables.SetOf[table]; ok {
		remedy = "run: outbox migrate up --set " + set
	}
	if len(names) == 0 {
		return &outbox.SchemaError{Table: table, Remedy: remedy}
	}
	var missing []string
	for _, c := range columns {
		if !slices.Contains(names, c) && !slices.Contains(missing, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return &outbox.SchemaError{Table: table, Missing: missing, Remedy: remedy}
	}
	return nil
}

// checkVisible finds out whether a policy lets this role see every tenant's rows.
func checkVisible(ctx context.Context, pool *pgxpool.Pool, layout outbox.Layout) error {
	sql, err := plain("check_visible")
	if err != nil {
		return err
	}
	var hidden bool
	if err := pool.QueryRow(ctx, sql, quoteTable(layout.Table)).Scan(&hidden); err != nil {
		return fmt.Errorf("check row-level security of %s: %w", layout.Table, err)
	}
	if hidden {
		return fmt.Errorf("serve table %s: %w: grant it outbox_relay (run: outbox migrate roles, then GRANT outbox_relay "+
			"TO CURRENT_USER)", layout.Table, outbox.ErrRowsHidden)
	}
	return nil
}

// checkAllowed finds out whether this role may read the table and write down what became of its events. Tables of the
// migration sets are granted by roles.sql; nobody but their owner can grant a mapped one.
func checkAllowed(ctx context.Context, pool *pgxpool.Pool, l outbox.Layout) error {
	var sets []string
	for _, c := range []string{l.Status, l.DeliveredAt, l.Attempts, l.NextRetryAt, l.LastError, l.ErrorHistory,
		l.DeliveredTo} {
		if c != "" {
			sets = append(sets, c)
		}
	}
	needs := []string{"SELECT"}
	if l.Status == "" { // dead rows leave the table
		needs = append(needs, "DELETE")
	}
	return allowed(ctx, pool, "serve table", l.Table, "check_allowed", needs, sets)
}

// allowed runs a statement that lists the privileges a relay's role lacks on a table for a purpose; $1 is the table.
func allowed(ctx context.Context, pool *pgxpool.Pool, purpose, table, statement string, args ...any) error {
	lacks, err := lacking(ctx, pool, table, statement, args...)
	if err != nil || len(lacks) == 0 {
		return err
	}
	remedy := fmt.Sprintf("as its owner run: GRANT %s ON %s TO outbox_relay, or to the relay's login",
		strings.Join(lacks, ", "), table)
	if _, ours := tables.SetOf[table]; ours {
		remedy = "run: outbox migrate roles, then GRANT outbox_relay TO the relay's login"
	}
	return fmt.Errorf("%s %s: %w: %s: %s", purpose, table, outbox.ErrNotAllowed, strings.Join(lacks, ", "), remedy)
}

func lacking(ctx context.Context, pool *pgxpool.Pool, table, statement string, args ...any) ([]string, error) {
	sql, err := plain(statement)
	if err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, sql, append([]any{quoteTable(table)}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("check privileges on %s: %w", table, err)
	}
	lacks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("check privileges on %s: %w", table, err)
	}
	return lacks, nil
}
