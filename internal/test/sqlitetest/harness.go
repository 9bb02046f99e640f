package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// Files makes a file with all tables, and returns what opens a copy of it for one test: migrating
// takes ten times as long.
func Files(t *testing.T) func(t *testing.T) *sqlite.DB {
	t.Helper()
	template := filepath.Join(t.TempDir(), "template.db")
	db, err := sqlite.Create(t.Context(), template, 1)
	ok(t, err)
	ok(t, errors.Join(migrations.Up(t.Context(), db.Writes(), "core", "events", "crawl"), db.Close()))
	return func(t *testing.T) *sqlite.DB {
		t.Helper()
		path := filepath.Join(t.TempDir(), "outbox.db")
		duplicate(t, template, path)
		db, err := sqlite.Connect(t.Context(), path, 4)
		ok(t, err)
		t.Cleanup(func() { ok(t, db.Close()) })
		return db
	}
}

// Harness is the store on a migrated file of its own.
func Harness(db *sqlite.DB) outboxtest.StoreHarness {
	exec := func(t *testing.T, text string, args ...any) {
		t.Helper()
		if _, err := db.Writes().ExecContext(t.Context(), text, stored(args)...); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return outboxtest.StoreHarness{
		Table: func(t *testing.T, layout outbox.Layout) outbox.Store {
			t.Helper()
			s, err := db.OpenTable(t.Context(), layout)
			ok(t, err)
			return s
		},
		Write: func(ctx context.Context, cfg outbox.WriterConfig, commit bool, batches ...[]outbox.Event) error {
			return write(ctx, db, cfg, commit, batches)
		},
		Hold: func(t *testing.T, cfg outbox.WriterConfig, events ...outbox.Event) func(bool) {
			t.Helper()
			w, err := sqlite.NewWriter(cfg)
			ok(t, err)
			tx, err := db.Begin(t.Context())
			ok(t, err)
			ok(t, w.Write(t.Context(), tx, events...))
			return func(commit bool) {
				t.Helper()
				ok(t, end(tx, commit))
			}
		},
		HoldExec: func(t *testing.T, text string, args ...any) func(bool) {
			t.Helper()
			tx, err := db.Begin(t.Context())
			ok(t, err)
			_, err = tx.ExecContext(t.Context(), text, stored(args)...)
			ok(t, err)
			return func(commit bool) {
				t.Helper()
				ok(t, end(tx, commit))
			}
		},
		Exec: exec,
		Value: func(t *testing.T, text string, args ...any) (value string) {
			t.Helper()
			if err := db.Reads().QueryRowContext(t.Context(), "SELECT coalesce(CAST(("+text+") AS TEXT), '')",
				stored(args)...).Scan(&value); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return value
		},
		Mapped: func(t *testing.T) outbox.Layout {
			t.Helper()
			exec(t, `CREATE TABLE legacy (n INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL, kind VARCHAR(50), body JSON, customer VARCHAR(50), region VARCHAR(50), goes JSON, version INT,
				done_at DATETIME, tries INT, due DATETIME, problem TEXT)`)
			return tabletest.Legacy()
		},
		Letters: func(t *testing.T, layouts ...outbox.Layout) deadletter.Store {
			t.Helper()
			d, err := sqlite.OpenDeadLetters(t.Context(), db, sqlite.DeadLettersConfig{Layouts: layouts})
			ok(t, err)
			return d
		},
		Jobs: func(*testing.T) deadletter.Recorder { return sqlite.NewJobLetters(db.Writes()) },
		// Each part's own field is set where its tests are.
		Age: func(t *testing.T, layout outbox.Layout, d time.Duration) {
			t.Helper()
			for table, columns := range tabletest.Aging(layout) {
				for _, c := range columns {
					exec(t,
						fmt.Sprintf(`UPDATE %s SET %[2]s = strftime('%%Y-%%m-%%dT%%H:%%M:%%f000Z', julianday(%[2]s) - ?1 / 86400.0) WHERE %[2]s IS NOT NULL`, table, c), d.Seconds())
				}
			}
		},
	}
}

// stored gives arguments the form that the tables have.
func stored(args []any) []any {
	all := make([]any, len(args))
	for i, a := range args {
		if at, is := a.(time.Time); is {
			a = at.UTC().Format("2006-01-02T15:04:05.000000Z")
		}
		all[i] = a
	}
	return all
}

func write(ctx context.Context, db *sqlite.DB, cfg outbox.WriterConfig, commit bool, batches [][]outbox.Event) error {
	w, err := sqlite.NewWriter(cfg)
	if err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, events := range batches {
		problems = append(problems, w.Write(ctx, tx, events...))
	}
	return errors.Join(append(problems, end(tx, commit))...)
}

func end(tx *sql.Tx, commit bool) error {
	if commit {
		return tx.Commit()
	}
	return tx.Rollback()
}

// duplicate copies a file that nobody has open.
func duplicate(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	ok(t, err)
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	ok(t, err)
	_, err = io.Copy(out, in)
	ok(t, errors.Join(err, out.Close()))
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
