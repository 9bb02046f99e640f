package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
)

// Store is an outbox table that a relay can serve. It is safe for concurrent use.
type Store struct {
	pool   *pgxpool.Pool
	layout Layout
	sql    statements
	intern interner
	claims claimSize
}

var _ outbox.Store = (*Store)(nil)

// Open returns the store of a table after checking that the table fits the layout, that the caller may see its rows, and that its lanes exist.
// pool should come from Connect. A table that is missing or older than the layout needs is an *SchemaError.
func Open(ctx context.Context, pool *pgxpool.Pool, layout Layout) (*Store, error) {
	if err := layout.Validate(); err != nil {
		return nil, err
	}
	sql, err := layout.statements()
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, layout: layout, sql: sql}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, sql.leaseRows, layout.Table, outbox.Lanes); err != nil {
		return nil, fmt.Errorf("make lanes of %s: %w", layout.Table, err)
	}
	return s, nil
}

// Layout returns the layout that the store was opened with.
func (s *Store) Layout() Layout { return s.layout }

// Backlog is how far behind a table's relay is.
type Backlog struct {
	Count  int           // undelivered rows, those waiting for a retry included; counting stops at the limit asked for
	Oldest time.Duration // age of the oldest one by the database's clock; 0 if there is none or the table keeps no time
}

// Backlog counts undelivered rows up to limit.
func (s *Store) Backlog(ctx context.Context, limit int) (Backlog, error) {
	var b Backlog
	var written *time.Time
	var id *uuid.UUID
	var now time.Time
	if err := s.pool.QueryRow(ctx, s.sql.backlog, limit).Scan(&b.Count, &written, &id, &now); err != nil {
		return Backlog{}, fmt.Errorf("read backlog of %s: %w", s.layout.Table, err)
	}
	if written == nil && id != nil {
		if t := timeOfID(*id); !t.IsZero() {
			written = &t
		}
	}
	if written != nil {
		b.Oldest = max(now.Sub(*written), 0)
	}
	return b, nil
}

// timeOfID returns the time in a UUIDv7, or zero for an id of another version.
func timeOfID(id uuid.UUID) time.Time {
	if id.Version() != 7 {
		return time.Time{}
	}
	ms := int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
	return time.UnixMilli(ms)
}

// SchemaError says that the database lacks what a layout needs, and what to do about it.
type SchemaError struct {
	Table   string
	Missing []string // columns, or empty if the whole table is missing
	Remedy  string
}

func (e *SchemaError) Error() string {
	if len(e.Missing) == 0 {
		return fmt.Sprintf("table %s does not exist: %s", e.Table, e.Remedy)
	}
	return fmt.Sprintf("table %s is older than this program needs, it lacks %s: %s", e.Table, strings.Join(e.Missing, ", "), e.Remedy)
}

// migrationSets says which set of migrations makes a table.
var migrationSets = map[string]string{
	"outbox_events": "core", "outbox_lanes": "core", "job_dlq": "core", "apps": "core", "event_outbox": "events", "crawl_outbox": "crawl",
}

func (s *Store) checkSchema(ctx context.Context) error {
	var columns []string
	for _, c := range s.layout.columns() {
		columns = append(columns, c)
	}
	for _, t := range []struct {
		table   string
		columns []string
	}{
		{s.layout.Table, columns},
		{"outbox_lanes", []string{"owner", "epoch", "expires_at"}},
		{"job_dlq", []string{"destination", "outbox_table", "event_key", "generation"}},
		{"apps", []string{"namespace"}},
	} {
		if err := checkTable(ctx, s.pool, t.table, t.columns); err != nil {
			return err
		}
	}
	return s.checkVisible(ctx)
}

func checkTable(ctx context.Context, pool *pgxpool.Pool, table string, columns []string) error {
	have, err := pool.Query(ctx, `SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`, quoteTable(table))
	if err != nil {
		return fmt.Errorf("check table %s: %w", table, err)
	}
	names, err := pgx.CollectRows(have, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("check table %s: %w", table, err)
	}
	remedy := "add the columns or correct the layout"
	if set, ok := migrationSets[table]; ok {
		remedy = "run: outbox migrate up --set " + set
	}
	if len(names) == 0 {
		return &SchemaError{Table: table, Remedy: remedy}
	}
	var missing []string
	for _, c := range columns {
		if !slices.Contains(names, c) && !slices.Contains(missing, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return &SchemaError{Table: table, Missing: missing, Remedy: remedy}
	}
	return nil
}

// ErrRowsHidden says that row-level security hides the table's rows from this role: a relay would see an empty table for ever.
var ErrRowsHidden = errors.New("row-level security hides the rows from this role")

// checkVisible finds out whether a policy lets this role see every tenant's rows.
func (s *Store) checkVisible(ctx context.Context) error {
	var hidden bool
	err := s.pool.QueryRow(ctx, `
		SELECT row_security_active(c.oid) AND NOT EXISTS (
		           SELECT FROM pg_policy p
		            WHERE p.polrelid = c.oid AND p.polcmd IN ('*', 'r') AND pg_get_expr(p.polqual, p.polrelid) = 'true'
		              AND EXISTS (SELECT FROM unnest(p.polroles) r WHERE r = 0 OR pg_has_role(current_user, r, 'USAGE')))
		  FROM pg_class c WHERE c.oid = to_regclass($1)`, quoteTable(s.layout.Table)).Scan(&hidden)
	switch {
	case err != nil:
		return fmt.Errorf("check row-level security of %s: %w", s.layout.Table, err)
	case hidden:
		return fmt.Errorf("serve table %s: %w: grant it outbox_relay (run: outbox migrate roles, then GRANT outbox_relay TO CURRENT_USER)", s.layout.Table, ErrRowsHidden)
	}
	return nil
}
