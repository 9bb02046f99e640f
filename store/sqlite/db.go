package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
)

// What callers of Connect branch on.
var (
	// ErrNoFile says that there is no such file. Create makes one.
	ErrNoFile = sqlitefile.ErrNoFile
	// ErrNotSQLite says that the file is something else than an SQLite database.
	ErrNotSQLite = sqlitefile.ErrNotSQLite
	// ErrBusy says that somebody else kept the file's write lock for as long as one waits for it.
	// Trying again helps in a new transaction, not in the one that it was answered to.
	ErrBusy = sqlitefile.ErrBusy
	// ErrReadOnly says that the file can be read but not written.
	ErrReadOnly = sqlitefile.ErrReadOnly
	// ErrDamaged says that the integrity check, or SQLite at any other moment, found the file
	// damaged.
	ErrDamaged = sqlitefile.ErrDamaged
	// ErrReplaced says that the file was deleted, or another put in its place, while it was open.
	ErrReplaced = sqlitefile.ErrReplaced
)

// DB is an open file. It has one connection that writes, so that the writers of this process take
// turns in Go and not by SQLite's sleeping and trying again. It has some that read, which no writer
// holds up. It is safe for concurrent use.
type DB struct {
	outbox.Database // what a Relay asks of it

	path    string // as it was given
	full    string // absolute
	place   place
	content content
	write   *sql.DB
	read    *sql.DB
	anchor  *sql.DB  // sees to it that the place stays
	bare    *sql.DB  // reads the file without the WAL; nil: there is no WAL
	wal     *os.File // nil: there is none

	patience time.Duration // sqlitefile.BusyFor, but in tests
	underWay time.Duration // underWay, but in tests
	turns    turns

	checking sync.Mutex
	checked  bool // checkIntegrity has passed

	closing sync.Once
}

// Ping asks whether the file can be read, and is still the one that its path leads to.
func (d *DB) Ping(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	return d.read.PingContext(ctx)
}

// Begin begins a transaction that may write, with BEGIN IMMEDIATE: once it has begun it does not
// fail for another writer's sake. It waits for the writers of this process as long as ctx allows,
// and for those of others for 30 s; relays give way to it. ErrReplaced, here or at Commit, says
// that nobody would ever see what is written.
func (d *DB) Begin(ctx context.Context) (*sql.Tx, error) {
	return d.write.BeginTx(ctx, nil)
}

// Writes is the connection that writes, for what needs a *sql.DB, such as migrations.Up and an ORM.
// It is only one, so what reads through it waits for writers too. An ORM that reads much is better
// off with a handle of its own (Source). A transaction that is left open holds up every writer.
func (d *DB) Writes() *sql.DB { return d.write }

// Reads are the connections that read; they refuse to write.
func (d *DB) Reads() *sql.DB { return d.read }

// checkIntegrity looks for damage, once a DB: a file that a disk or a copy under way has spoiled
// must not be served as if nothing had happened. It reads the whole file.
func (d *DB) checkIntegrity(ctx context.Context) error {
	d.checking.Lock()
	defer d.checking.Unlock()
	if d.checked {
		return nil
	}
	var found string
	if err := d.read.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return fmt.Errorf("check %s: %w", d.path, explain(err))
	}
	if found != "ok" {
		return fmt.Errorf("check %s: %w (%s)", d.path, ErrDamaged, found)
	}
	d.checked = true
	return nil
}

// served is a DB as a Relay asks it.
type served struct{ db *DB }

// explain is sqlitefile.Explain.
func explain(err error) error { return sqlitefile.Explain(err) }

// inTx runs fn in a transaction of Begin, and commits it.
func (d *DB) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	return sqlitefile.InTx(ctx, d, fn)
}

// snapshot runs fn in a transaction that only reads, and sees one state of the file.
func (d *DB) snapshot(ctx context.Context, fn func(*sql.Tx) error) error {
	return d.file().Snapshot(ctx, fn)
}

// file is the DB as internal/store/sqlitetable asks it.
func (d *DB) file() sqlitetable.File { return sqlitetable.File{Reads: d.read, Explain: explain} }
