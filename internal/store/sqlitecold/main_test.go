package sqlitecold_test

import (
	"path/filepath"
	"testing"

	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// filled is a file with all tables, in which the statements were run.
func filled(t *testing.T, statements ...string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := migrations.Up(t.Context(), db.Writes(), "core", "events", "crawl"); err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if _, err := db.Writes().ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return db
}
