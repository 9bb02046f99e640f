package dev

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// database makes an SQLite file with what statements make.
func database(t *testing.T, statements ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "it is.db")
	db, err := sqlite.Create(t.Context(), path, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.Writes().ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func text(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckFile(t *testing.T) {
	t.Parallel()
	ours := database(t)
	if err := app.MigrationsOf("sqlite:" + ours).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Of another program, which does not use a WAL.
	theirs := filepath.Join(t.TempDir(), "theirs.db")
	other, err := sql.Open("sqlite", theirs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), "CREATE TABLE customers (id INTEGER)"); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	shared := database(t, "CREATE TABLE customers (id INTEGER)")
	if err := app.MigrationsOf("sqlite:" + shared).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct{ path, says string }{
		{filepath.Join(t.TempDir(), "new.db"), ""},
		{text(t, ""), ""},
		{database(t), ""},
		{ours, ""},
		{shared, ""},
		{theirs,
			"has a table customers) and was left as it is: choose another file with --file; or, if its outbox is to live in " +
				"it: outbox migrate up"},
		{text(t, "My notes, which are longer than a header."),
			"is no SQLite database and was left as it is: choose another file with --file"},
		{filepath.Join(t.TempDir(), "no", "such.db"), "no such file or directory: choose a file in another with --file"},
		{"/sys/outbox.db", "choose a file in another with --file, or use --temp"}, // where even root cannot write
		{t.TempDir(), "is a directory: choose another file with --file"},
	} {
		before, _ := os.ReadFile(f.path)
		beside, err := filepath.Glob(filepath.Dir(f.path) + "/*")
		if err != nil {
			t.Fatal(err)
		}
		err = CheckFile(t.Context(), f.path)
		if f.says == "" && err != nil || f.says != "" && (err == nil || !strings.Contains(err.Error(), f.says)) {
			t.Errorf("%s: got %v, want %q", f.path, err, f.says)
		}
		after, _ := os.ReadFile(f.path)
		if !bytes.Equal(before, after) {
			t.Errorf("%s was changed", f.path)
		}
		if left, _ := filepath.Glob(filepath.Dir(f.path) + "/*"); len(left) != len(beside) {
			t.Errorf("%s: there were %v, now %v", f.path, beside, left)
		}
	}
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"postgres://localhost/shop":        "",
		"postgresql://u:p@h:5432/shop?a=b": "",
		"host=localhost dbname=shop":       "",
		" host = localhost":                "",
		"sqlite:foreign.db":                "say --file foreign.db",
		"sqlite:///var/lib/foreign.db":     "say --file /var/lib/foreign.db",
		"file:secret.db?mode=rw":           "has the scheme file:, which is not supported",
		"mysql://h/shop?password=secret":   "has the scheme mysql://, which is not supported",
		"postgres://h:port/secret":         "invalid port",
		"secret":                           "no valid URL",
		" ":                                "no valid URL",
	} {
		err := CheckServer(url)
		if says == "" && err != nil || says != "" &&
			(err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: got %v, want %q", url, err, says)
		}
	}
}
