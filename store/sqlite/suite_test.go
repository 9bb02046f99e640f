package sqlite_test

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
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/retention"
	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
	"github.com/outboxrelay/outbox/tables"
)

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	template := filepath.Join(t.TempDir(), "template.db")
	ok(t, create(t, template).Close())
	outboxtest.StoreSuite(t, outboxtest.StoreFeatures{StoresBytes: true, SurvivesErrors: true},
		func(t *testing.T) outboxtest.StoreHarness {
			path := filepath.Join(t.TempDir(), "outbox.db")
			duplicate(t, template, path) // migrating takes ten times as long
			return newHarness(t, connect(t, path))
		})
}

// newHarness is the store under test, on a migrated file of its own.
func newHarness(t *testing.T, db *sqlite.DB) outboxtest.StoreHarness {
	t.Helper()
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
			return legacy()
		},
		Browser: func(t *testing.T, layout outbox.Layout) tables.Browser {
			t.Helper()
			b, err := sqlite.OpenBrowser(t.Context(), db, layout)
			ok(t, err)
			return b
		},
		Pauses: func(t *testing.T) tables.Pauses {
			t.Helper()
			p, err := sqlite.OpenPauses(t.Context(), db)
			ok(t, err)
			return p
		},
		Letters: func(t *testing.T, layouts ...outbox.Layout) deadletter.Store {
			t.Helper()
			d, err := sqlite.OpenDeadLetters(t.Context(), db, sqlite.DeadLettersConfig{Layouts: layouts})
			ok(t, err)
			return d
		},
		Jobs: func(*testing.T) deadletter.Recorder { return sqlite.JobLetters{DB: db.Writes()} },
		Retention: func(t *testing.T, layout outbox.Layout) retention.Store {
			t.Helper()
			r, err := db.OpenRetention(t.Context(), layout)
			ok(t, err)
			return r
		},
		LetterRetention: func(t *testing.T) retention.Store {
			t.Helper()
			r, err := db.OpenLetterRetention(t.Context())
			ok(t, err)
			return r
		},
		// Each part's own field is set where its tests are.
		Age: func(t *testing.T, layout outbox.Layout, d time.Duration) {
			t.Helper()
			for table, columns := range aging(layout) {
				for _, c := range columns {
					exec(t,
						fmt.Sprintf(`UPDATE %s SET %[2]s = strftime('%%Y-%%m-%%dT%%H:%%M:%%f000Z', julianday(%[2]s) - ?1 / 86400.0) WHERE %[2]s IS NOT NULL`, table, c), d.Seconds())
				}
			}
		},
	}
}

// legacy is the layout of what Mapped makes.
func legacy() outbox.Layout {
	return outbox.Layout{
		Table: "legacy", ID: "uid", Position: "n", Topic: "kind", Payload: "body", Key: "customer",
		KeyScope: []string{"region"}, Tenant: "region",
		Destinations: "goes", SchemaVersion: "version", DeliveredAt: "done_at", Attempts: "tries", NextRetryAt: "due",
		LastError: "problem",
	}
}

// aging names the columns that tell how old something is.
func aging(l outbox.Layout) map[string][]string {
	columns := map[string][]string{
		"job_dlq": {"replayed_at", "discarded_at"}, "outbox_maintenance": {"ran_at", "swept_at", "expires_at"},
	}
	for _, c := range []string{l.DeliveredAt, l.WrittenAt, l.NextRetryAt} {
		if c != "" {
			columns[l.Table] = append(columns[l.Table], c)
		}
	}
	return columns
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

// create makes a file with all tables.
func create(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Create(t.Context(), path, 1)
	ok(t, err)
	ok(t, migrations.Up(t.Context(), db.Writes()))
	return db
}

// connect opens a file and closes it when t ends.
func connect(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Connect(t.Context(), path, 4)
	ok(t, err)
	t.Cleanup(func() { ok(t, db.Close()) })
	return db
}

// duplicate copies a file that nobody has open.
func duplicate(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	ok(t, err)
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	ok(t, err)
	_, err = io.Copy(out, in)
	ok(t, errors.Join(err, out.Close()))
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
