package pgschema

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var files = sqlfile.Folder(sqlFiles)

// CheckTable answers with an *outbox.SchemaError if the table is not there or lacks one of the
// columns.
func CheckTable(ctx context.Context, pool *pgxpool.Pool, table string, columns []string) error {
	have, err := names(ctx, pool, "check_columns", quoted(table))
	if err != nil {
		return fmt.Errorf("check table %s: %w", table, err)
	}
	err = migration.CheckColumns(table, have, columns, nil)
	var missing *outbox.SchemaError
	if len(have) > 0 || !errors.As(err, &missing) || strings.Contains(table, ".") {
		return err
	}
	if elsewhere, looked := names(ctx, pool, "check_elsewhere", table); looked == nil && len(elsewhere) > 0 {
		missing.Remedy = elsewhere[0]
	}
	return err
}

// CheckWritable finds out whether a session may write. Where none may, those of the pool are
// closed: one that was made while the database was read-only stays so.
func CheckWritable(ctx context.Context, pool *pgxpool.Pool) error {
	why, err := names(ctx, pool, "check_writable")
	if err != nil {
		return fmt.Errorf("check whether the database takes writes: %w", err)
	}
	if len(why) > 0 {
		pool.Reset()
		return errors.New(why[0])
	}
	return nil
}

// Lacking returns the privileges that the role lacks on a table or a sequence: those on the whole
// of it, and UPDATE of columns.
func Lacking(ctx context.Context, pool *pgxpool.Pool, table string, whole, columns []string) ([]string, error) {
	lacks, err := names(ctx, pool, "check_allowed", quoted(table), whole, columns)
	if err != nil {
		return nil, fmt.Errorf("check privileges on %s: %w", table, err)
	}
	return lacks, nil
}

// CheckAllowed finds out whether a relay's role has the privileges on a table that a purpose needs:
// those on the whole of it, and UPDATE of columns.
func CheckAllowed(
	ctx context.Context, pool *pgxpool.Pool, purpose, table string, whole []string, columns ...string,
) error {
	lacks, err := Lacking(ctx, pool, table, whole, columns)
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

// RowsHidden finds out whether row-level security shows the role not all of a table's rows.
func RowsHidden(ctx context.Context, pool *pgxpool.Pool, table string) (hidden bool, err error) {
	sql, err := files.Statement("check_visible", nil)
	if err != nil {
		return false, err
	}
	if err := pool.QueryRow(ctx, sql, quoted(table)).Scan(&hidden); err != nil {
		return false, fmt.Errorf("check row-level security of %s: %w", table, err)
	}
	return hidden, nil
}

// CheckVisible finds out whether a policy lets this role see every tenant's rows.
func CheckVisible(ctx context.Context, pool *pgxpool.Pool, table string) error {
	hidden, err := RowsHidden(ctx, pool, table)
	if err != nil {
		return err
	}
	if hidden {
		return fmt.Errorf("serve table %s: %w: %s", table, outbox.ErrRowsHidden, showRows(table))
	}
	return nil
}

// showRows is the remedy for rows that row-level security hides from a relay. The policies have the
// names of those of roles.sql, which replaces them.
func showRows(table string) string {
	policy := func(table string) string {
		return fmt.Sprintf("CREATE POLICY %s_relay ON %s TO CURRENT_USER USING (true) WITH CHECK (true)",
			strings.ReplaceAll(table, ".", "_"), table)
	}
	text := "run `outbox migrate roles` as a superuser or a role with CREATEROLE, then GRANT outbox_relay TO this role; " +
		"or, if this role owns the table, run: " + policy(table)
	if _, ours := migration.SetOf[table]; ours && table != "job_dlq" {
		text += "; " + policy("job_dlq")
	}
	return text
}

// names runs a statement that lists names.
func names(ctx context.Context, pool *pgxpool.Pool, file string, args ...any) ([]string, error) {
	sql, err := files.Statement(file, nil)
	if err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// quoted quotes a table's name, and the schema before it, if there is one.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }
