package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"os"
	"time"

	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
)

// firstPage notices a file that was written over while the WAL has frames that are not in the file.
// The time of the file does not show it, because the next checkpoint changes the time too. A
// checkpoint copies pages from the WAL. So the first page of the file is the one that was known, or
// is in the WAL, as long as the WAL was not restarted. The first page contains the size of the
// database, the number of free pages and a counter, so that a backup has another one, unless the
// file has not grown or shrunk since.
type firstPage struct {
	size     int64
	modified time.Time
	page     []byte // the first page of the file; nil: unknown
	salt     uint64 // the restart of the WAL for which page is known
	final    bool   // page is the one of modified: the clock of the file system has moved on since
}

// clockTick is longer than the interval in which a file system gives every change the same time.
const clockTick = 20 * time.Millisecond

// overwritten reports whether the first page of the file is of another file. The salt is read
// first: whatever happens later, happens after a restart of the WAL, or with the frames that are
// looked at here. It reads the page twice for each checkpoint (0.1 ms each).
func (f *firstPage) overwritten(d *DB) bool {
	salt := d.salt()
	main, err := os.Stat(d.full)
	if err != nil {
		return false // SQLite says what is wrong with it
	}
	changed := f.page == nil || main.Size() != f.size || !main.ModTime().Equal(f.modified)
	if !changed && f.final {
		f.salt = salt
		return false
	}
	final := time.Since(main.ModTime()) > clockTick
	if !changed && !final {
		return false
	}
	page, err := d.firstPage()
	if err != nil || d.salt() != salt {
		return false // a change is under way: the next call looks again
	}
	if changed && f.page != nil && salt != 0 && salt == f.salt && !bytes.Equal(page, f.page) && !d.inWAL(page, salt) {
		again, err := d.firstPage() // it may have been read while it was written
		return err == nil && bytes.Equal(page, again) && d.salt() == salt
	}
	if after, err := os.Stat(d.full); err != nil || !after.ModTime().Equal(main.ModTime()) {
		final = false
	}
	*f = firstPage{main.Size(), main.ModTime(), page, salt, final}
	return false
}

const firstPageSQL = "SELECT data FROM sqlite_dbpage WHERE pgno = 1"

// openBare opens the file for firstPage. SQLite reads the file, so that closing it releases no lock
// of this process. "immutable" leaves out the WAL, and "writable_schema" tolerates a file that has
// grown.
func openBare(full string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", sqlitefile.Source(full, "ro", "deferred", "writable_schema(1)")+"&immutable=1")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// firstPage reads the first page of the file as it is without the WAL.
func (d *DB) firstPage() (page []byte, err error) {
	if _, err := d.bare.Exec("PRAGMA shrink_memory"); err != nil { // it empties the cache
		return nil, err
	}
	err = d.bare.QueryRow(firstPageSQL).Scan(&page)
	return page, err
}

// The format of a WAL: sqlite.org/fileformat2.html#walformat.
const (
	walHeader   = 32
	frameHeader = 24
)

// salt identifies a restart of the WAL; 0: the WAL is empty.
func (d *DB) salt() uint64 {
	salt := make([]byte, 8)
	if _, err := d.wal.ReadAt(salt, 16); err != nil {
		return 0
	}
	return binary.BigEndian.Uint64(salt)
}

// inWAL reports whether a frame of the WAL contains page as the first page.
func (d *DB) inWAL(page []byte, salt uint64) bool {
	frame := make([]byte, frameHeader+len(page))
	for at := int64(walHeader); ; at += int64(len(frame)) {
		if _, err := d.wal.ReadAt(frame[:frameHeader], at); err != nil || binary.BigEndian.Uint64(frame[8:]) != salt {
			return false // frames of an earlier restart are left behind the last one
		}
		if binary.BigEndian.Uint32(frame) != 1 {
			continue
		}
		if _, err := d.wal.ReadAt(frame, at); err != nil || bytes.Equal(frame[frameHeader:], page) {
			return err == nil
		}
	}
}
