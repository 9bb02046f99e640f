package sqlitecold_test

import (
	"path/filepath"
	"strings"
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

// planOf is what SQLite says of how it runs a statement.
func planOf(t *testing.T, db *sqlite.DB, statement string, args ...any) string {
	t.Helper()
	for len(args) < strings.Count(statement, "?") {
		args = append(args, nil)
	}
	rows, err := db.Reads().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer func() { _ = rows.Close() }()
	var lines []string
	for rows.Next() {
		var id, parent, unused int
		var line string
		if err := rows.Scan(&id, &parent, &unused, &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
