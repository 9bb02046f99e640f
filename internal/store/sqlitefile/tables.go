package sqlitefile

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
)

//go:embed sql/tables.sql
var tablesSQL string

// Tables lists the tables of a file that exists, for whoever wants to know whose it is before a
// store turns it into a file with a WAL. It changes nothing, but that SQLite repairs what a crash
// has left, as at every opening. Errors: ErrNotSQLite, or the system's.
func Tables(ctx context.Context, path string) (names []string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("look into %s: %w", path, Explain(err))
		}
	}()
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// Not mode=ro, which leaves the -wal and -shm of a file with a WAL behind.
	db, err := sql.Open("sqlite", Source(full, "rw", "deferred", "query_only(1)"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, tablesSQL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}
