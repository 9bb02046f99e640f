package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// A relay or a worker on a file that it cannot write to would run and fail for ever. What only
// reads works.
func TestFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testenv.Nobody(t), "outbox.db")
	db, err := Create(t.Context(), path, 1)
	if err == nil {
		err = errors.Join(upAll(t, db), db.Close(), os.Chmod(path, 0o400))
	}
	if err != nil {
		t.Fatal(err)
	}
	if db, err = Connect(t.Context(), path, 1); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := openTable(t.Context(), db, outbox.OutboxEvents()); !errors.Is(err, ErrReadOnly) {
		t.Errorf("open: got error %v, want ErrReadOnly", err)
	}
	d, err := OpenDeadLetters(t.Context(), db, DeadLettersConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.List(t.Context(), deadletter.Filter{}); err != nil {
		t.Errorf("list letters: %v", err)
	}
}

// ofdGetLock is F_OFD_GETLK of fcntl(2): it sees the locks of this process too.
const ofdGetLock = 36

// Connect beside an application's own handle must not cost that one its locks. Without them an
// older SQLite in another process, such as Debian 12's shell (3.40), takes itself for the last to
// close the file, removes the WAL, and what this process commits from then on is in a file without
// a name (measured: lost, without an error).
func TestConnectLeavesTheLocksOfOtherHandles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	app := appHandle(t, Source(path))
	if _, err := app.ExecContext(t.Context(), "CREATE TABLE orders (n)"); err != nil {
		t.Fatal(err)
	}
	// The kernel is asked about this one file: /proc/locks is read in pieces, and misses locks
	// while others come and go.
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // and not before: closing it is what ends the locks of this process
	locked := func() bool {
		lock := syscall.Flock_t{Type: syscall.F_WRLCK}
		if err := syscall.FcntlFlock(file.Fd(), ofdGetLock, &lock); err != nil {
			t.Fatal(err)
		}
		return lock.Type != syscall.F_UNLCK
	}
	if !locked() {
		t.Fatal("an open handle has no lock: this test finds nothing out")
	}
	if _, err := sqlitefile.Tables(t.Context(), path); err != nil || !locked() {
		t.Errorf("after Tables the lock is gone; error %v", err)
	}
	reopened(t, path)
	if !locked() {
		t.Error("after Connect the lock is gone")
	}
}
