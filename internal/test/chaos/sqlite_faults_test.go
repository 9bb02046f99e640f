package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
)

// TestSQLiteFaults is about what befalls a file otherwise than by kills, while a program with the
// library and one with plain SQL write and two relays deliver.
func TestSQLiteFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name   string
		root   bool
		disk   func(*testing.T) (dir string, fill func() (func() error, error))
		strike func(*file, func() (func() error, error)) (struck int)
	}{
		{name: "sqlite-disk-full", root: true, disk: smallDisk, strike: fileDiskFull},
		{name: "sqlite-long-reader", strike: longReader},
		{name: "sqlite-write-lock-held", strike: lockHeld},
		{name: "sqlite-file-replaced", strike: replaced},
		{name: "sqlite-shm-deleted", strike: removed("-shm")},
		{name: "sqlite-wal-deleted", strike: removed("-wal")},
		{name: "sqlite-wal-and-shm-deleted", strike: removed("-wal", "-shm")},
		{name: "sqlite-producer-beside-8-relays", strike: crowded},
	} {
		row(t, fault.name, fault.root, func(t *testing.T) {
			var dir string
			var fill func() (func() error, error)
			if fault.disk == nil {
				dir = t.TempDir()
			} else {
				dir, fill = fault.disk(t)
			}
			f := newFile(t, fault.name, dir)
			f.play(roleLibrary)
			f.play(rolePlain)
			f.relay(nil)
			f.relay(nil)
			f.arrive(100)
			eventually(t, "both relays serve the file", func() bool {
				return strings.Contains(f.relays[0].said(), `"relaying"`) && strings.Contains(f.relays[1].said(), `"relaying"`)
			})
			f.finish(fault.name, fault.strike(f, fill))
		})
	}
}

func smallDisk(t *testing.T) (dir string, fill func() (func() error, error)) {
	disk := testenv.SmallDisk(t, 48)
	return disk.Dir(), disk.Fill
}

// fileDiskFull fills the disk under the file, twice: programs get errors and relays complain. When
// there is room, both go on by themselves.
func fileDiskFull(f *file, fill func() (func() error, error)) (struck int) {
	for range 2 {
		before, complaints := f.refusals("full"), f.said("is full")
		free, err := fill()
		f.must(err)
		eventually(f.t, "transactions fail, and relays say so",
			func() bool { return f.refusals("full") > before+10 && f.said("is full") > complaints })
		f.must(free())
		f.goOn()
		struck += f.refusals("full") - before
	}
	return struck
}

// goOn waits until programs commit again and what they commit arrives.
func (f *file) goOn() {
	f.t.Helper()
	var before []int
	for _, p := range f.players {
		before = append(before, p.did())
	}
	f.arrive(200)
	eventually(f.t, "every program commits again", func() bool {
		for i, p := range f.players {
			if p.did() <= before[i] {
				return false
			}
		}
		return true
	})
}

// longReader holds a snapshot, so that nothing behind it can be moved from the WAL into the file:
// the WAL grows far beyond the 4 MiB at which it is else begun anew, and that is all that happens.
func longReader(f *file, _ func() (func() error, error)) int {
	db := f.open()
	conn, err := db.Conn(f.t.Context()) // not a sql.Tx, which would be a writer's
	f.must(err)
	if _, err := conn.ExecContext(f.t.Context(), "BEGIN"); err != nil {
		f.t.Fatal(err)
	}
	count := func() (n int) {
		f.must(conn.QueryRowContext(f.t.Context(), `SELECT count(*) FROM outbox_events`).Scan(&n))
		return n
	}
	seen := count()
	grown := func() int64 {
		info, err := os.Stat(f.path + "-wal")
		f.must(err)
		return info.Size() >> 20
	}
	eventually(f.t, "the WAL has grown to 12 MiB", func() bool { return grown() >= 12 })
	if n := count(); n != seen {
		f.t.Errorf("the reader sees %d events, it saw %d", n, seen)
	}
	struck := int(grown())
	f.must(errors.Join(conn.Close(), db.Close()))
	f.goOn()
	return struck
}

// lockHeld is a program that leaves a transaction open for 15 s, which is several leases and longer
// than anybody waits for a lock. The relays say so, publish nothing twice, and go on.
func lockHeld(f *file, _ func() (func() error, error)) (struck int) {
	db := f.open()
	tx, err := db.Begin()
	f.must(err)
	if _, err := tx.Exec(`INSERT INTO orders (events) VALUES ('[]')`); err != nil {
		f.t.Fatal(err)
	}
	time.Sleep(15 * time.Second)
	f.must(tx.Commit())
	f.must(db.Close())
	f.goOn()
	for _, r := range f.relays {
		if n := strings.Count(r.said(), "cannot renew lease") + strings.Count(r.said(), "relay cannot make progress"); n > 0 {
			struck++
		}
	}
	if struck != len(f.relays) {
		f.t.Errorf("%d of %d relays said that they could not go on", struck, len(f.relays))
	}
	return struck
}

// replaced deletes the file and makes another in its place, as one does on a developer's machine
// who does not know what is still running. What had it open would go on with the deleted one for
// ever; it says so instead, and when it is started again it works.
func replaced(f *file, _ func() (func() error, error)) (struck int) {
	library, plain := f.players[0], f.players[1]
	plain.terminate(f.t) // SQLite itself says nothing to it
	files, err := filepath.Glob(f.path + "*")
	f.must(err)
	for _, name := range files {
		f.must(os.Remove(name))
	}
	f.create()
	f.stopped(library)
	f.heard.quiet(100 * time.Millisecond)
	f.forget()
	f.startAgain()
	return len(f.relays) - 2
}

// removed deletes what is beside the file, as one does who takes it for temporary files. What has
// it open says so and stops; who comes then, even before the others have been ended, finds all that
// was committed, and keeps what it commits.
func removed(suffixes ...string) func(*file, func() (func() error, error)) int {
	return func(f *file, _ func() (func() error, error)) (struck int) {
		library, plain := f.players[0], f.players[1]
		plain.terminate(f.t) // SQLite itself says nothing to it
		for _, suffix := range suffixes {
			f.must(os.Remove(f.path + suffix))
			struck++
		}
		f.sayReplaced()
		early := f.play(roleLibrary)
		eventually(f.t, "a program that was started then commits", early.worked)
		f.stopped(library)
		f.startAgain()
		return struck
	}
}

// sayReplaced waits until the program and the relays say that their file has gone.
func (f *file) sayReplaced() {
	f.t.Helper()
	const says = "the file was deleted or replaced while it was open"
	eventually(f.t, "the program and the relays say that their file has gone", func() bool {
		return f.refusals(says) > 0 && strings.Contains(f.relays[0].said(), says) &&
			strings.Contains(f.relays[1].said(), says)
	})
}

// stopped waits for the program and the relays to say that their file has gone, and ends them.
func (f *file) stopped(library *player) {
	f.t.Helper()
	f.sayReplaced()
	library.end(f.t, syscall.SIGTERM)
	if library.err == nil {
		f.t.Error("the program could close a file that has gone")
	}
	for _, r := range f.relays {
		r.kill(f.t) // one that could not settle its batch would try until its time to drain is over
	}
}

// startAgain starts what replaced has ended.
func (f *file) startAgain() {
	f.t.Helper()
	for _, role := range []string{roleLibrary, rolePlain} {
		eventually(f.t, "a program that was started again commits", f.play(role).worked)
	}
	f.relay(nil)
	f.relay(nil)
	f.arrive(200)
}

// forget drops what was written and received so far: it has gone with the file.
func (f *file) forget() {
	f.mu.Lock()
	f.txs = map[string]*transaction{}
	f.mu.Unlock()
	f.heard.mu.Lock()
	f.heard.received = nil
	f.heard.mu.Unlock()
}

// crowded is a file with eight relays that are busy with a backlog, in small batches, and programs
// that write with the library and with plain SQL: none of them fails for the write lock.
func crowded(f *file, _ func() (func() error, error)) (struck int) {
	for len(f.relays) < 8 {
		f.relay(nil, "--batch", "20")
	}
	eventually(f.t, "every relay has its share of the lanes", func() bool {
		return one[int](f,
			`SELECT count(DISTINCT owner) FROM outbox_lanes WHERE table_name = 'outbox_events'`) == len(f.relays)
	})
	f.backlog(kills(3000, 60_000))
	before := f.attempted.Load()
	eventually(f.t, "the backlog is delivered, and the programs have written meanwhile", func() bool {
		return one[int](f, `SELECT count(*) FROM outbox_events WHERE source_bc = 'backlog' AND status <> 'SENT'`) == 0 &&
			f.attempted.Load() > before+100
	})
	if n := f.refusals(""); n > 0 {
		f.t.Errorf("%d transactions of programs failed beside the relays, the first with: %s", n, f.failures[0])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note = fmt.Sprintf("  longest wait of a producer %d ms", f.waited.Milliseconds())
	return len(f.relays)
}

// backlog writes n events, each with a key of its own, in one transaction.
func (f *file) backlog(n int) {
	f.t.Helper()
	db := f.open()
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	// It is the test's own: whether a program's transaction fails is asked of the players.
	if _, err := db.Exec("PRAGMA busy_timeout = 300000"); err != nil {
		f.t.Fatal(err)
	}
	tx, err := db.BeginTx(f.t.Context(), nil)
	f.must(err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.Exec(`INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
		SELECT 'order.changed', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'Order', 'backlog ' || i, 'backlog', '{}' FROM n`, n)
	f.must(err)
	said := saying{Did: didCommit}
	var keys string
	err = tx.QueryRow(`INSERT INTO orders (events) SELECT json_group_array(id) FROM outbox_events WHERE source_bc = 'backlog'
		RETURNING n, (SELECT json_group_array(json_object('ID', id, 'Key', aggregate_id)) FROM outbox_events WHERE source_bc = 'backlog')`).Scan(&said.N, &keys)
	f.must(errors.Join(err, json.Unmarshal([]byte(keys), &said.Events), tx.Commit()))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.txs[said.Events[0].ID] = &transaction{said, outboxtest.Acknowledged, time.Now()}
}
