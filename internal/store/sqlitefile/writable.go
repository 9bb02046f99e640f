package sqlitefile

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
)

var (
	//go:embed sql/check_writable.sql
	writableSQL string
	//go:embed sql/path.sql
	pathSQL string
)

// CheckWritable finds a file that can only be read at the start, and not at every turn of a relay.
// It waits for nobody: a file that somebody else writes to can be written. reads is a handle of the
// file.
func CheckWritable(ctx context.Context, reads *sql.DB) (err error) {
	var path string
	if err := reads.QueryRowContext(ctx, pathSQL).Scan(&path); err != nil {
		return fmt.Errorf("ask for the path of the file: %w", Explain(err))
	}
	own, err := sql.Open("sqlite", Source(path, "rw", "deferred", "busy_timeout(0)"))
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	if _, err = own.ExecContext(ctx, writableSQL); err != nil {
		if err = Explain(err); !errors.Is(err, ErrBusy) {
			return fmt.Errorf("write to %s: %w", path, err)
		}
	}
	return nil
}
