package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
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
		{"outbox_relays", []string{"owner", "name", "expires_at", "health"}},
		{"job_dlq", []string{"destination", "outbox_table", "event_key", "generation", "position", "origin"}},
		{"apps", []string{"namespace"}},
		{"outbox_pauses", []string{"destination"}},
	} {
		if err := pgschema.CheckTable(ctx, s.pool.Pool, t.table, t.columns); err != nil {
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
	if l.IsLog() {
		return allowed(ctx, pool, "serve table", l.Table, needs, nil)
	}
	if l.Status == "" || l.Settle.Removes() { // dead or delivered rows leave the table
		needs = append(needs, "DELETE")
	}
	return allowed(ctx, pool, "serve table", l.Table, needs, sets)
}

// checkSettles finds out which right or table a settle lacks. That is what is checked at the start, and what only some
// settles write: letters, and what sinks owe. A relay without those needs no right to them.
func (s *store) checkSettles(ctx context.Context) error {
	if err := s.checkSchema(ctx); err != nil {
		return err
	}
	if s.layout.IsLog() {
		if err := checkLog(ctx, s.pool.Pool); err != nil {
			return err
		}
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
			err = allowed(ctx, s.pool.Pool, t.purpose, t.table, t.needs, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkArchive finds out whether delivered rows can go into outbox_archive.
func checkArchive(ctx context.Context, pool *pgxpool.Pool) error {
	if err := pgschema.CheckTable(ctx, pool, "outbox_archive", []string{"position", "row"}); err != nil {
		return err
	}
	return allowed(ctx, pool, "archive delivered rows in", "outbox_archive", []string{"INSERT"}, nil)
}

// allowed finds out whether a relay's role has the privileges on a table that a purpose needs: those on the whole of
// it, and UPDATE of columns.
func allowed(ctx context.Context, pool *pgxpool.Pool, purpose, table string, whole, columns []string) error {
	lacks, err := pgschema.Lacking(ctx, pool, table, whole, columns)
	if err != nil || len(lacks) == 0 {
		return err
	}
	remedy := fmt.Sprintf("as its owner run: GRANT %s ON %s TO outbox_relay, or to the relay's login",
		strings.Join(lacks, ", "), table)
	if _, ours := migration.SetOf[table]; ours {
		remedy = "run: outbox migrate roles, then GRANT outbox_relay TO the relay's login"
	}
	return fmt.Errorf("%s %s: %w: %s: %s", purpose, table, outbox.ErrNotAllowed, strings.Join(lacks, ", "), remedy)
}
