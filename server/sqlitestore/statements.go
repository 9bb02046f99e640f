package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"sync"

	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// parseSQL parses the files once: opening a store asks for them several times.
var parseSQL = sync.OnceValues(func() (*sqlfile.Set, error) { return sqlfile.Parse(sqlFiles, "sql/*.sql") })

// plain returns a statement that needs no names.
func plain(name string) (string, error) {
	t, err := parseSQL()
	if err != nil {
		return "", err
	}
	return t.Statement(name, nil)
}

// compile prepares statements for as long as the DB is open. In a transaction on the only connection that writes it
// would be too late.
func compile(ctx context.Context, db *sql.DB, data any, statements map[string]**sql.Stmt) error {
	t, err := parseSQL()
	if err != nil {
		return err
	}
	for name, dst := range statements {
		text, err := t.Statement(name, data)
		if err != nil {
			return err
		}
		if *dst, err = db.PrepareContext(ctx, text); err != nil {
			return fmt.Errorf("prepare %s: %w", name, sqlitefile.Explain(err))
		}
	}
	return nil
}

// query calls scan for each row, until it fails.
func query(ctx context.Context, stmt *sql.Stmt, scan func(*sql.Rows) error, args ...any) error {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return sqlitefile.Explain(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return sqlitefile.Explain(rows.Err())
}
