package sqlite

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// SQLite goes on with a file that was deleted, and a writer would never know that nobody reads what
// it writes.
func TestFileReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	create := func() *DB {
		db, err := Create(t.Context(), path, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if err := migrations.Up(t.Context(), db.Writes(), "core", "events", "crawl"); err != nil {
			t.Fatal(err)
		}
		return db
	}
	old := create()
	store, err := openTable(t.Context(), old, outbox.OutboxEvents())
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
		if _, err := store.Lease(t.Context(), outbox.LeaseRequest{Owner: uuid.New(), TTL: time.Second}); !errors.Is(err,
			want) {
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

// A script that tidies up takes -wal and -shm for temporary files. What was committed before is in
// the file, and nothing is committed that would not be.
func TestWALRemoved(t *testing.T) {
	t.Parallel()
	for name, suffixes := range map[string][]string{"wal": {"-wal"}, "shm": {"-shm"}, "both": {"-wal", "-shm"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "outbox.db")
			db, err := Create(t.Context(), path, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := upAll(t, db); err != nil {
				t.Fatal(err)
			}
			store, owner, lanes := serving(t, db, outbox.OutboxEvents())
			w, err := NewWriter(outbox.WriterConfig{})
			if err != nil {
				t.Fatal(err)
			}
			begin := func() *sql.Tx {
				tx, err := db.Begin(t.Context())
				if err == nil {
					err = w.Write(t.Context(), tx, someEvents(10)...)
				}
				if err != nil {
					t.Fatal(err)
				}
				return tx
			}
			if err := begin().Commit(); err != nil {
				t.Fatal(err)
			}
			late := begin()
			for _, suffix := range suffixes {
				if err := os.Remove(path + suffix); err != nil {
					t.Fatal(err)
				}
			}
			if err := late.Commit(); !errors.Is(err, ErrReplaced) {
				t.Errorf("commit: got error %v, want ErrReplaced", err)
			}
			tx, beginning := db.Begin(t.Context())
			if beginning == nil {
				_ = tx.Rollback()
			}
			_, leasing := store.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, TTL: time.Second})
			_, claiming := store.Claim(t.Context(), lanes, everything)
			_, again := Connect(t.Context(), path, 1) // it would get what this process has of the old WAL
			for what, err := range map[string]error{
				"begin": beginning, "lease": leasing, "claim": claiming, "ping": db.Ping(t.Context()), "close": db.Close(),
				"connect again": again,
			} {
				if !errors.Is(err, ErrReplaced) || !strings.Contains(err.Error(), path+suffixes[0]) {
					t.Errorf("%s: got error %v, want ErrReplaced", what, err)
				}
			}
			// As the next process finds it.
			next := filepath.Join(t.TempDir(), "outbox.db")
			for _, suffix := range []string{"", "-wal"} {
				content, err := os.ReadFile(path + suffix)
				if err == nil {
					err = os.WriteFile(next+suffix, content, 0o600)
				}
				if err != nil && suffix == "" {
					t.Fatal(err)
				}
			}
			if n := value(t, reopened(t, next), "SELECT count(*) FROM outbox_events"); n != "10" {
				t.Errorf("%s events are left, want 10", n)
			}
		})
	}
}

// Who comes and goes takes nothing away from those who stay: their connections hold the file, even
// when all that they use are closed.
func TestPlaceOutlivesConnections(t *testing.T) {
	t.Parallel()
	db := filled(t)
	db.write.SetMaxIdleConns(-1)
	db.read.SetMaxIdleConns(-1)
	for range 3 {
		manyEvents(t, db, 1, "a")
		other := reopened(t, db.path)
		manyEvents(t, other, 1, "a")
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if err := db.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
