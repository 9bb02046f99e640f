package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
)

// A handle of the application's own that is opened with Source waits for others, and one that is
// not is told what to do.
func TestSource(t *testing.T) {
	t.Parallel()
	db := filled(t)
	for pragma, want := range map[string]string{"busy_timeout": "30000", "journal_mode": "wal", "synchronous": "2",
		"foreign_keys": "1"} {
		var got string
		if err := appHandle(t, Source(db.path)).QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil ||
			got != want {
			t.Errorf("%s is %s, %v, want %s", pragma, got, err, want)
		}
	}
	w, err := NewWriter(outbox.WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	// What an ORM does: it looks, and then writes.
	write := func(app *sql.DB) error {
		tx, err := app.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		var n int
		if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM apps").Scan(&n); err != nil {
			return err
		}
		if err := w.Write(t.Context(), tx, someEvents(1)...); err != nil {
			return err
		}
		return tx.Commit()
	}
	held, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := write(appHandle(t, db.path)); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "sqlite.Source") ||
		strings.Contains(err.Error(), sqlitefile.BusyFor.String()) {
		t.Errorf("without settings: %v", err)
	}
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	app, ended := appHandle(t, Source(db.path)), make(chan error)
	for range 4 {
		go func() {
			var problems []error
			for range 10 {
				problems = append(problems, write(app))
			}
			ended <- errors.Join(problems...)
		}()
	}
	for range 4 {
		if err := <-ended; err != nil {
			t.Errorf("with Source: %v", err)
		}
	}
	if got := value(t, db, "SELECT count(*) FROM outbox_events"); got != "40" {
		t.Errorf("%s events, want 40", got)
	}
}

// Two copies of SQLite in one process damage a file. The second is this one under another name: a
// real one would need a C compiler.
func TestWriteRefusesAnotherLibrary(t *testing.T) {
	t.Parallel()
	db, other := filled(t), filled(t)
	app := appHandle(t, Source(db.path))
	w, err := NewWriter(outbox.WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	write := func() error {
		tx, err := app.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		return w.Write(t.Context(), tx, someEvents(1)...)
	}
	call := func(d *DB, library string) {
		opened.mu.Lock()
		defer opened.mu.Unlock()
		opened.all[d] = library
		opened.count.Add(1)
	}
	call(other, "mattn's, on another file")
	if err := write(); err != nil {
		t.Error(err)
	}
	call(db, "mattn's")
	for range 2 {
		if err := write(); !errors.Is(err, ErrTwoLibraries) {
			t.Errorf("got error %v, want ErrTwoLibraries", err)
		}
	}
	db.discharge()
	if err := write(); err != nil {
		t.Error(err)
	}
}

// The command's URL of a file is no path: a file of that name would be made, and nobody would look
// into it.
func TestConnectRefusesURLs(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, open := range map[string]func(context.Context, string, int) (*DB, error){
		"Create": Create, "Connect": Connect,
	} {
		for _, url := range []string{"sqlite:g.db", "sqlite://g.db"} {
			db, err := open(t.Context(), url, 1)
			if err == nil || !strings.Contains(err.Error(), "without sqlite: in front, g.db (") {
				t.Errorf("%s(%q): %v", name, url, err)
			}
			if err == nil {
				_ = db.Close()
			}
		}
	}
	if found, err := filepath.Glob("*"); err != nil || len(found) > 0 {
		t.Errorf("made %q, %v", found, err)
	}
	db, err := Create(t.Context(), "./sqlite:g.db", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// Closing what is closed is no failure: the WAL is gone because the first Close has removed it.
func TestCloseTwice(t *testing.T) {
	t.Parallel()
	db, err := Create(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := db.Close(); err != nil {
			t.Errorf("close %d: %v", i+1, err)
		}
	}
}

// Whoever finds the file damaged says what to do.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	db, err := Create(t.Context(), path, 1)
	if err == nil {
		err = errors.Join(upAll(t, db), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(content[100:], strings.Repeat("?", 400)) // the list of tables, behind the header
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, looking := sqlitefile.Tables(t.Context(), path)
	db, opening := Connect(t.Context(), path, 1)
	if opening == nil {
		_, opening = openTable(t.Context(), db, outbox.OutboxEvents())
		_ = db.Close()
	}
	for _, err := range []error{looking, opening} {
		if !errors.Is(err, ErrDamaged) || strings.Count(err.Error(), ".recover") != 1 {
			t.Errorf("got error %v", err)
		}
	}
}

func appHandle(t *testing.T, source string) *sql.DB {
	t.Helper()
	app, err := sql.Open("sqlite", source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	return app
}
