package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// CheckFile tells whether path can be a file of ours: one that is not there yet, or holds tables of ours, in a folder
// that can be written to. It leaves nothing behind.
func CheckFile(ctx context.Context, path string) error {
	// SQLite keeps its WAL beside the file, and all that it would say is "unable to open database file".
	probe, err := os.CreateTemp(filepath.Dir(path), ".outbox-*")
	if err != nil {
		return fmt.Errorf("write to folder %s: %w: choose a file in another with --file, or use --temp", filepath.Dir(path),
			reason(err))
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fmt.Errorf("write to folder %s: %w", filepath.Dir(path), err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w: choose another file with --file", path, reason(err))
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if info.Size() == 0 {
		return nil // as SQLite leaves one in which nothing was ever written
	}
	names, err := sqlitefile.Tables(ctx, path)
	if errors.Is(err, sqlite.ErrNotSQLite) {
		return fmt.Errorf("%s is no SQLite database and was left as it is: choose another file with --file", path)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ours := migration.SetOf[name]; ours {
			return nil
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s is the database of another program (it has a table %s) and was left as it is: choose another "+
		"file with --file; or, if its outbox is to live in it: outbox migrate up --database sqlite:%s",
		path, names[0], path)
}

// CheckServer tells whether url names a database on a server. It connects to nothing, and does not show url, which may
// hold a password.
func CheckServer(url string) error {
	if path, ok := app.FileOf(url); ok {
		return fmt.Errorf("--database names a file: say --file %s", path)
	}
	if err := app.CheckDatabase(url); err != nil {
		return fmt.Errorf("--database %w", err)
	}
	return nil
}

// reason is the system's word without the path, which is said already.
func reason(err error) error {
	var failure *fs.PathError
	if errors.As(err, &failure) {
		return failure.Err
	}
	return err
}
