package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
	"github.com/outboxrelay/outbox/tables"
)

// SQLite goes on with a file that was deleted, and a writer would never know that nobody reads what it writes.
func TestFileReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	create := func() *DB {
		db, err := Create(t.Context(), path, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if err := migrations.Up(t.Context(), db.Writes()); err != nil {
			t.Fatal(err)
		}
		return db
	}
	old := create()
	store, err := Open(t.Context(), old, tables.OutboxEvents())
	if err != nil {
		t.Fatal(err)
	}
	use := func(want error) {
		t.Helper()
		tx, err := old.Begin(t.Context())
		if err == nil {
			err = tx.Rollback()
		}
		if !errors.Is(err, want) {
			t.Errorf("begin: got %v, want %v", err, want)
		}
		if _, err := store.Lease(t.Context(), outbox.LeaseRequest{Owner: uuid.New(), TTL: time.Second}); !errors.Is(err, want) {
			t.Errorf("lease: got %v, want %v", err, want)
		}
	}
	use(nil)
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	use(ErrReplaced)
	for _, name := range []string{"-wal", "-shm"} { // of the old one; SQLite would take them for the new one's
		if err := os.Rename(path+name, path+".away"+name); err != nil {
			t.Fatal(err)
		}
	}
	create()
	use(ErrReplaced)
}
