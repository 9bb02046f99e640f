package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
)

// Connect opens a file that exists, with at most readers connections that read: WAL,
// synchronous=FULL, foreign keys on. Errors: ErrNoFile, ErrNotSQLite, or the system's. path is none
// of the command's URLs: sqlite: in front is refused.
func Connect(ctx context.Context, path string, readers int) (*DB, error) {
	return open(ctx, path, readers, "rw")
}

// Create is Connect for a file that may not exist yet. Then an empty one is made, for its owner
// alone (0600), as its -wal and -shm will be: it will hold payloads of all tenants.
func Create(ctx context.Context, path string, readers int) (*DB, error) {
	return open(ctx, path, readers, "rwc")
}

func open(ctx context.Context, path string, readers int, mode string) (_ *DB, err error) {
	if file, isURL := strings.CutPrefix(path, "sqlite:"); isURL {
		return nil, fmt.Errorf("open %s: give the file's path without sqlite: in front, %s (one that is called so is ./%s)",
			path, strings.TrimPrefix(file, "//"), path)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	info, err := os.Stat(full)
	switch {
	case errors.Is(err, os.ErrNotExist) && mode == "rw":
		return nil, fmt.Errorf("open %s: %w", path, ErrNoFile)
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("open %s: it is a directory: name a file in it", path)
	}
	if err == nil {
		err = onlyName(full, info)
	} else if mode == "rwc" {
		err = makeFile(full)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	d := &DB{path: path, full: full, patience: sqlitefile.BusyFor, underWay: underWay}
	d.Database = served{d}
	// Nothing looks into the file but SQLite: whoever closes a file takes all of his process's
	// locks on it away, also those of an application's own handle.
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	writing, err := newWriting(d, sqlitefile.Source(full, mode, "immediate", "journal_mode(WAL)", "synchronous(FULL)"))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	d.write = sql.OpenDB(writing)
	d.write.SetMaxOpenConns(1)
	if err := d.write.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, explain(err))
	}
	if err := d.hold(ctx); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// After the writer: only it may turn WAL on.
	if d.read, err = sql.Open("sqlite", sqlitefile.Source(full, "rw", "deferred", "query_only(1)")); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	d.read.SetMaxOpenConns(max(readers, 1))
	d.read.SetMaxIdleConns(max(readers, 1))
	if err := d.enroll(ctx); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return d, nil
}

// makeFile makes an empty file that only its owner can read. One that somebody else makes at this
// moment is left as it is. Where the name is a link to what is not there, the file is made at its
// end: SQLite would make one there that everybody can read.
func makeFile(full string) error {
	end := full
	for range 40 { // as many as Linux follows
		link, err := os.Readlink(end)
		if err != nil {
			break
		}
		if !filepath.IsAbs(link) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(end))
			if err != nil {
				return nil // SQLite says what is wrong with it
			}
			link = filepath.Join(dir, link)
		}
		end = link
	}
	f, err := os.OpenFile(end, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil // SQLite says what is wrong with it
	}
	return f.Close()
}

// onlyName refuses a file that this process has open under another name, by a hard link: each name
// would have a WAL of its own, and commits would be lost. It also refuses one whose WAL has gone
// under this process: SQLite would go on with what it has of the old one.
func onlyName(full string, info os.FileInfo) error {
	name, err := filepath.EvalSymlinks(full)
	if err != nil {
		return fmt.Errorf("follow links: %w", err)
	}
	opened.mu.Lock()
	defer opened.mu.Unlock()
	for d := range opened.all {
		if !d.is(info) {
			continue
		}
		if err := d.inPlace(); err != nil {
			return err
		}
		if other, err := filepath.EvalSymlinks(d.full); err == nil && other != name {
			return fmt.Errorf("it is open as %s already, and by two names of one file commits would be lost: use one of them "+
				"everywhere", d.path)
		}
	}
	return nil
}

// Source is the name under which an application, or its ORM, opens a file for itself beside a DB:
// sql.Open("sqlite", sqlite.Source(path)). Its transactions wait for others as Begin's do, begin
// with BEGIN IMMEDIATE unless they are sql.TxOptions{ReadOnly: true}, and are on the disk when they
// have committed; foreign keys are on. The file is made if it is not there.
func Source(path string) string {
	return sqlitefile.Source(path, "rwc", "immediate", "journal_mode(WAL)", "synchronous(FULL)")
}

// Close ends all connections. The last process to close a file moves what is in the WAL into it and
// removes the WAL. Transactions must have ended.
//
// Where the file or its WAL was replaced one connection stays open until the process ends, and
// Close says ErrReplaced. SQLite would take what it has of the old WAL for the content of the new
// one, or remove that.
//
// Only the first Close does anything; later ones return nil.
func (d *DB) Close() (err error) {
	d.closing.Do(func() { err = d.close() })
	return err
}

func (d *DB) close() error {
	var problems []error
	ends := []*sql.DB{d.bare, d.read, d.anchor, d.write} // the writer last: it is the one that moves the WAL into the file
	if d.anchor != nil {
		if err := d.check(); err != nil {
			problems = append(problems, err)
			ends = []*sql.DB{d.bare, d.read, d.write}
		}
	}
	if len(problems) == 0 {
		d.discharge() // one whose place has gone is remembered: see onlyName
	}
	if d.wal != nil {
		problems = append(problems, d.wal.Close())
	}
	for _, db := range ends {
		if db != nil {
			problems = append(problems, db.Close())
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("close %s: %w", d.path, err)
	}
	return nil
}
