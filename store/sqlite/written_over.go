package sqlite

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// content notices that another program has written to the file, as cp does when it copies a backup
// over an open database. The inode stays the same, and SQLite mixes the new pages with those of the
// WAL and of its cache. SQLite itself writes to a file with a WAL in checkpoints only. So a file
// that is smaller than its database was written over. A file whose size or time has changed was
// written over if no checkpoint was made and none has anything to do: while the WAL has frames that
// are not in the file, the writer may be a checkpoint that lasts, or one whose process was killed.
// There firstPage decides.
type content struct {
	mu       sync.Mutex
	size     int64
	modified time.Time
	made     checkpoint
	since    time.Time // when the file had changed without a checkpoint; zero: it has not
	over     bool      // it was written over
	first    firstPage
}

// checkpoint identifies the checkpoints that were made: the salt that the WAL got when it was
// restarted, and how many of its frames are in the file. A WAL that a checkpoint has emptied has no
// salt. There the version of the data takes its place.
type checkpoint struct {
	salt  uint64
	moved int64
}

// underWay is how long a checkpoint may take between its last write to the file and the record in
// the WAL index. In between, it waits for the disk.
const underWay = 5 * time.Second

// unchanged returns ErrReplaced if another program has written to the file. main describes the file
// as it is now. The file itself is not opened: closing it would release all of this process's locks
// on it.
func (d *DB) unchanged(main os.FileInfo) error {
	c := &d.content
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && (main.Size() != c.size || !main.ModTime().Equal(c.modified) || !c.since.IsZero()) {
		made, pages, pending, err := d.checkpoints()
		switch {
		case err != nil: // what asks SQLite for something else gets the same error
		case d.writing(main): // what was read may be of an earlier time than main, or a later one
			return nil
		case made != c.made || c.modified.IsZero():
			c.made, c.since = made, time.Time{}
		case main.Size() < c.size && main.Size() < pages: // no checkpoint makes a file smaller than its database
			c.over = true
		case c.since.IsZero() || !main.ModTime().Equal(c.modified):
			c.since = time.Now()
		case time.Since(c.since) > d.underWay:
			c.over = !pending
		}
		if err == nil {
			c.size, c.modified = main.Size(), main.ModTime()
		}
	}
	c.over = c.over || c.first.overwritten(d)
	if c.over {
		return fmt.Errorf("use %s: it was written over: stop every process that has it open, delete %s-wal and %s-shm, "+
			"put the backup in its place again, and start them: %w", d.path, d.path, d.path, ErrReplaced)
	}
	return nil
}

// writing reports whether the file has changed since main was asked for.
func (d *DB) writing(main os.FileInfo) bool {
	now, err := os.Stat(d.full)
	return err != nil || !now.ModTime().Equal(main.ModTime())
}

const pagesSQL = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"

// checkpoints returns the checkpoints that were made, the size of the database in bytes, and
// whether the WAL has frames that are not in the file.
func (d *DB) checkpoints() (made checkpoint, size int64, pending bool, err error) {
	if made.salt = d.salt(); made.salt == 0 {
		if err := d.anchor.QueryRow("PRAGMA data_version").Scan(&made.salt); err != nil {
			return made, 0, false, err
		}
	}
	var busy, frames int64
	row := d.anchor.QueryRow("PRAGMA wal_checkpoint(NOOP)")
	if err := row.Scan(&busy, &frames, &made.moved); err != nil {
		return made, 0, false, err
	}
	row = d.anchor.QueryRow(pagesSQL)
	return made, size, made.moved < frames, row.Scan(&size)
}
