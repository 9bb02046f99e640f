package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitemigrations"
	"github.com/outboxrelay/outbox/server/sqlitestore"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/store/sqlite"
)

func sqliteStore() store {
	return store{
		schemes: []string{"sqlite"},
		example: "sqlite:outbox.db for a file",
		check:   checkSQLite, mask: sqlitePath, file: sqlitePath,
		opener: func() opener {
			f := new(sqliteFile)
			return func(ctx context.Context, url string, u use) (Database, error) { return f.open(ctx, sqlitePath(url), u) }
		},
		migrations: func(url string) Migrations { return sqliteMigrations{sqlitePath(url)} },
		required:   sqlitemigrations.Required,
		passes:     sqlitefile.Passes, hint: hintSQLite,
	}
}

// sqlitePath returns the file of a URL: sqlite:outbox.db, sqlite:/var/lib/outbox.db, or with //
// behind the colon.
func sqlitePath(url string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pooler.CleanURL(url), "sqlite:"), "//")
}

// checkSQLite checks the path of a file. What SQLite itself would take for something else than a
// file is refused.
func checkSQLite(url string) error {
	switch path := sqlitePath(url); {
	case path == "":
		return errors.New("names no file: want sqlite:FILE such as sqlite:outbox.db")
	case strings.HasPrefix(path, ":"): // of SQLite's own, in RAM
		return fmt.Errorf("%s would be gone with the process, and each of its connections would have one of its own: "+
			"want sqlite:FILE such as sqlite:outbox.db", path)
	case strings.Contains(path, "?"): // whoever writes one means options, and would get a file of that name
		return errors.New("the name of the file has a ? in it, and options such as mode=ro are not taken: write the " +
			"file's path alone, as in sqlite:outbox.db")
	case path == "~", strings.HasPrefix(path, "~/"): // within a word no shell expands it
		return fmt.Errorf("~ is not expanded in sqlite:%s: write the whole path, or in a shell \"sqlite:$HOME%s\"",
			path, path[1:])
	}
	return nil
}

// sqliteFile is a file that the parts of a process open as one DB, so that those of them that write
// take turns in Go. The zero value is ready for use.
type sqliteFile struct {
	mu    sync.Mutex
	db    *sqlite.DB // nil: nobody has it open
	users int
	conns int // that its users want to read with, at most
}

// open opens the file for a further user. Nothing else than somebody who acts cures an error of it,
// but for another process that keeps it locked.
func (f *sqliteFile) open(ctx context.Context, path string, u use) (Database, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil {
		db, err := sqlite.Connect(ctx, path, u.conns)
		switch {
		case errors.Is(err, sqlite.ErrBusy):
			return nil, err
		case err != nil:
			return nil, outbox.Permanent(err)
		}
		f.db, f.conns = db, 0
	}
	f.users++
	f.conns += u.conns
	f.db.Reads().SetMaxOpenConns(f.conns)
	f.db.Reads().SetMaxIdleConns(f.conns)
	return &sqliteDatabase{Database: f.db, views: viewsOf(sqlitecold.DB{File: f.db}), file: f, db: f.db}, nil
}

func (f *sqliteFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users--; f.users == 0 {
		_ = f.db.Close() // what was committed is on the disk, whatever this says
		f.db = nil
	}
}

// sqliteDatabase is a Database in a file.
type sqliteDatabase struct {
	outbox.Database // is db
	views
	file   *sqliteFile
	db     *sqlite.DB
	closed sync.Once
}

func (d *sqliteDatabase) Close() { d.closed.Do(d.file.close) }

func (d *sqliteDatabase) Ping(ctx context.Context) error { return d.db.Ping(ctx) }

func (d *sqliteDatabase) OpenRetention(ctx context.Context, layout outbox.Layout) (*retention.Table, error) {
	return d.db.OpenRetention(ctx, layout)
}

func (d *sqliteDatabase) Runs(ctx context.Context) (Runs, error) {
	return sqlitestore.OpenRuns(ctx, d.db)
}

// Subscriptions implements ForParts: there are no logs.
func (*sqliteDatabase) Subscriptions(context.Context) (subscription.Store, error) {
	return nil, ErrNoSubscriptions
}

func (d *sqliteDatabase) Tokens(ctx context.Context) (Tokens, error) {
	return sqlitestore.OpenTokens(ctx, d.db)
}

func (d *sqliteDatabase) Letters(ctx context.Context, layouts []outbox.Layout) (deadletter.Store, error) {
	return sqlite.OpenDeadLetters(ctx, d.db, sqlite.DeadLettersConfig{Layouts: layouts})
}

// Notifier returns one that does nothing: who listens sees every commit by itself.
func (d *sqliteDatabase) Notifier() (Notifier, error) { return silent{}, nil }

type silent struct{}

func (silent) Wake(string) {}

func (silent) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// sqliteWriting is a Writing into a file.
type sqliteWriting struct {
	preparing
	db      *sqlite.DB
	writer  outbox.Writer[outbox.SQLTx]
	browser *operate.Browser // tells which ids were there before
}

func (d *sqliteDatabase) Writing(ctx context.Context, cfg outbox.WriterConfig) (Writing, error) {
	writer, err := sqlite.NewWriter(cfg)
	if err != nil {
		return nil, err
	}
	layout := outbox.OutboxEvents()
	layout.Table = cfg.Table
	browser, err := d.Browser(ctx, layout)
	if err != nil {
		return nil, err
	}
	return &sqliteWriting{preparing{cfg}, d.db, writer, browser}, nil
}

func (w *sqliteWriting) Commit(
	ctx context.Context, events []outbox.Event, ask []uuid.UUID,
) (known []uuid.UUID, err error) {
	tx, err := w.db.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // of no effect after Commit
	if len(ask) > 0 {
		if known, err = w.browser.Known(ctx, cold.SQL{SQLTx: tx}, ask); err != nil {
			return nil, err
		}
	}
	if err := w.writer.Write(ctx, tx, events...); err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return known, nil
}

// Close has nothing to do: nobody needs to be woken.
func (w *sqliteWriting) Close() {}

// hintSQLite names the remedy where the error's own text cannot know it.
func hintSQLite(err error) string {
	var failure *driver.Error
	code := 0
	if errors.As(err, &failure) {
		code = failure.Code() & 0xff
	}
	switch {
	case errors.Is(err, sqlite.ErrNoFile):
		return "make it with: outbox migrate up, and the same --database"
	case errors.Is(err, sqlite.ErrNotSQLite):
		return "name another file in --database or OUTBOX_DATABASE_URL: nothing was changed in this one"
	case code == codes.SQLITE_CANTOPEN, code == codes.SQLITE_READONLY, code == codes.SQLITE_PERM:
		return "the file and its folder must exist and be writable: beside the file are its -wal and -shm"
	case code == codes.SQLITE_CORRUPT && !errors.Is(err, sqlite.ErrDamaged):
		return sqlite.ErrDamaged.Error()
	case failure != nil && failure.Code() == codes.SQLITE_IOERR_SHORT_READ:
		return "beside the file may be the -wal and -shm of a process that still works on a deleted one: stop it"
	case code == codes.SQLITE_FULL, code == codes.SQLITE_IOERR:
		return "is the disk full or broken?"
	}
	return ""
}
