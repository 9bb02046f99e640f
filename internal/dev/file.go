package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/tables"
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
	names, err := sqlite.Tables(ctx, path)
	if errors.Is(err, sqlite.ErrNotSQLite) {
		return fmt.Errorf("%s is no SQLite database and was left as it is: choose another file with --file", path)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ours := tables.SetOf[name]; ours {
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

// CheckServer tells whether url names a PostgreSQL server, as a URL or as keywords and values. It connects to nothing,
// and does not show url, which may hold a password.
func CheckServer(url string) error {
	if path, ok := config.SQLiteFile(url); ok {
		return fmt.Errorf("--postgres names an SQLite file: say --file %s", path)
	}
	// The parser takes whatever has a = for keywords and values, mysql://host/shop?a=b too, and then connects to the
	// default server.
	looks := regexp.MustCompile(`^(postgres(ql)?://|\s*[a-z_]+\s*=)`).MatchString(url)
	if _, err := pgx.ParseConfig(url); err != nil || !looks {
		return errors.New("--postgres is no valid URL (not shown, it may hold a password): want " +
			"postgres://user:password@host:5432/database")
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
