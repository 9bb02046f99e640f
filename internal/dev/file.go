package dev

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/outboxrelay/outbox/tables"
)

// CheckFile tells whether path can be a file of ours: one that is not there yet, or holds tables of ours, in a folder that can be written to. It leaves nothing behind.
func CheckFile(ctx context.Context, path string) error {
	// SQLite keeps its WAL beside the file, and all that it would say is "unable to open database file".
	probe, err := os.CreateTemp(filepath.Dir(path), ".outbox-*")
	if err != nil {
		return fmt.Errorf("write to folder %s: %w: choose a file in another with --file, or use --temp", filepath.Dir(path), reason(err))
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
	names, err := tablesOf(ctx, path)
	var failure *driver.Error
	if errors.As(err, &failure) && failure.Code() == codes.SQLITE_NOTADB {
		return fmt.Errorf("%s is no SQLite database and was left as it is: choose another file with --file", path)
	}
	if err != nil {
		return fmt.Errorf("look into %s: %w", path, err)
	}
	for _, name := range names {
		if _, ours := tables.Sets[name]; ours {
			return nil
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s is the database of another program (it has a table %s) and was left as it is: choose another file with --file; or, if its outbox is to live in it: outbox migrate up --database sqlite:%s",
		path, names[0], path)
}

//go:embed tables.sql
var listTables string

// tablesOf changes nothing, but that SQLite repairs what a crash has left, as at every opening. sqlite.Connect would turn another program's file into one with a WAL.
func tablesOf(ctx context.Context, path string) (names []string, err error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// Not mode=ro, which leaves the -wal and -shm of a file with a WAL behind.
	source := url.URL{Scheme: "file", Opaque: (&url.URL{Path: full}).EscapedPath(), RawQuery: "mode=rw&_pragma=busy_timeout(10000)&_pragma=query_only(1)"}
	db, err := sql.Open("sqlite", source.String())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, listTables)
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

// reason is the system's word without the path, which is said already.
func reason(err error) error {
	var failure *fs.PathError
	if errors.As(err, &failure) {
		return failure.Err
	}
	return err
}
