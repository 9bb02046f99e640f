package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// A backup that is copied over an open file keeps the file's inode. SQLite mixes the two, and an
// idle relay would go on with leases and events of another time.
func TestFileWrittenOver(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]func(t *testing.T, path, backup string){
		"by a smaller backup":        copyOver,
		"by a backup of equal size":  copyPadded,
		"by nothing after its start": func(t *testing.T, path, _ string) { check(t, os.Truncate(path, 40960)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := Create(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), 2)
			check(t, err)
			check(t, upAll(t, db))
			db.underWay = 200 * time.Millisecond
			manyEvents(t, db, 300, "a")
			store, owner, _ := serving(t, db, outbox.OutboxEvents())
			backup := filepath.Join(t.TempDir(), "backup.db")
			_, err = db.Writes().ExecContext(t.Context(), "VACUUM INTO ?", backup)
			check(t, err)
			for range 5 { // checkpoints of this process and of others are no reason
				manyEvents(t, db, 300, "a")
				other := reopened(t, db.path)
				_, err := other.Writes().ExecContext(t.Context(), "PRAGMA wal_checkpoint(PASSIVE)")
				check(t, err)
				check(t, other.Close())
				check(t, db.Ping(t.Context()))
			}
			time.Sleep(2 * db.underWay)
			check(t, db.Ping(t.Context()))
			over(t, db.path, backup)
			_ = db.Ping(t.Context())
			time.Sleep(2 * db.underWay)
			_, leasing := store.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, TTL: time.Minute})
			_, beginning := db.Begin(t.Context())
			for what, err := range map[string]error{"lease": leasing, "begin": beginning, "ping": db.Ping(t.Context())} {
				if !errors.Is(err, ErrReplaced) {
					t.Errorf("%s: got error %v, want ErrReplaced", what, err)
				}
			}
			if refusal, is := errors.AsType[*outbox.RefusedError](leasing); !is || !refusal.Whole {
				t.Errorf("lease: got error %v, want one that makes the relay unhealthy at once", leasing)
			}
		})
	}
}

// The WAL nearly always has frames that are not in the file. The next checkpoint mixes them with the
// backup, so the process has to notice the backup before.
func TestFileWrittenOverBeforeCheckpoint(t *testing.T) {
	t.Parallel()
	for name, backUp := range map[string]func(t *testing.T, db *DB, backup string){
		"by VACUUM INTO": func(t *testing.T, db *DB, backup string) {
			_, err := db.Writes().ExecContext(t.Context(), "VACUUM INTO ?", backup)
			check(t, err)
		},
		"by a copy of the file": func(t *testing.T, db *DB, backup string) {
			_, err := db.Writes().ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)")
			check(t, err)
			content, err := os.ReadFile(db.path)
			check(t, err)
			check(t, os.WriteFile(backup, content, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "outbox.db")
			db, err := Create(t.Context(), path, 2)
			check(t, err)
			t.Cleanup(func() { _ = db.Close() })
			check(t, upAll(t, db))
			manyEvents(t, db, 300, "a")
			backup := filepath.Join(t.TempDir(), "backup.db")
			backUp(t, db, backup)
			for i := range 3 { // the WAL is restarted, and has frames left
				manyEvents(t, db, 300, fmt.Sprint(i))
				_, err = db.Writes().ExecContext(t.Context(), "PRAGMA wal_checkpoint(PASSIVE)")
				check(t, err)
				manyEvents(t, db, 10, fmt.Sprint(i))
				time.Sleep(2 * clockTick)
				check(t, db.Ping(t.Context()))
			}
			copyPadded(t, path, backup)
			tx, err := db.Begin(t.Context())
			if err == nil {
				_ = tx.Rollback()
			}
			if !errors.Is(err, ErrReplaced) {
				t.Errorf("begin: got error %v, want ErrReplaced", err)
			}
		})
	}
}

// A checkpoint can empty the WAL. Then the WAL looks as if nothing had been written.
func TestEmptiedWALIsNotWrittenOver(t *testing.T) {
	t.Parallel()
	db := filled(t)
	db.underWay = 50 * time.Millisecond
	other, err := sql.Open("sqlite", Source(db.path))
	check(t, err)
	t.Cleanup(func() { _ = other.Close() })
	for i := range 3 {
		_, err := other.ExecContext(t.Context(), "CREATE TABLE "+fmt.Sprint("another", i)+" (n)")
		check(t, err)
		_, err = other.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)")
		check(t, err)
		check(t, db.Ping(t.Context()))
	}
	time.Sleep(2 * db.underWay)
	check(t, db.Ping(t.Context()))
}

// Many processes write and checkpoint at the same time, and none of them takes that for a file that
// was written over.
func TestCheckpointsAreNotWrittenOver(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	db := filled(t)
	db.underWay = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	other, err := sql.Open("sqlite", Source(db.path))
	check(t, err)
	t.Cleanup(func() { _ = other.Close() })
	for i := 0; ctx.Err() == nil; i++ {
		manyEvents(t, db, 20, fmt.Sprint(i))
		mode := []string{"PASSIVE", "FULL", "RESTART", "TRUNCATE"}[i%4]
		_, _ = other.ExecContext(ctx, "PRAGMA wal_checkpoint("+mode+")")
		if i%50 == 0 {
			_, err := db.Writes().ExecContext(t.Context(), "DELETE FROM outbox_events")
			check(t, err)
			_, err = db.Writes().ExecContext(t.Context(), "VACUUM")
			check(t, err)
		}
		check(t, db.Ping(t.Context()))
	}
}

// A process that is killed during a checkpoint has written to the file and recorded no checkpoint.
func TestKilledCheckpointIsNotWrittenOver(t *testing.T) {
	t.Parallel()
	db := filled(t)
	db.underWay = 50 * time.Millisecond
	check(t, db.Ping(t.Context()))
	manyEvents(t, db, 1, "b") // the WAL has something to checkpoint
	check(t, os.Chtimes(db.path, time.Time{}, time.Now().Add(time.Second)))
	for range 4 {
		time.Sleep(db.underWay)
		check(t, db.Ping(t.Context()))
	}
}

func copyOver(t *testing.T, path, backup string) {
	t.Helper()
	content, err := os.ReadFile(backup)
	check(t, err)
	check(t, os.WriteFile(path, content, 0o600))
}

// copyPadded makes the backup as large as the file.
func copyPadded(t *testing.T, path, backup string) {
	t.Helper()
	info, err := os.Stat(path)
	check(t, err)
	check(t, os.Truncate(backup, info.Size()))
	copyOver(t, path, backup)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
