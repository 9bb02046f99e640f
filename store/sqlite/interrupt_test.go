package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

// A context that ends in the middle of a Write must not cost the caller's transaction what he did
// before and does afterwards: SQLite rolls a transaction back when an INSERT is interrupted, and
// what follows would commit by itself.
func TestWriteWhoseContextEnds(t *testing.T) {
	t.Parallel()
	db := filled(t)
	if _, err := db.Writes().ExecContext(t.Context(), "CREATE TABLE orders (id TEXT)"); err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(outbox.WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	refused, written := 0, 0
	for i := 0; written < 5; i++ { // each waits a little longer, until the Writes are through
		events := someEvents(2*rowsPerInsert + 1)
		for j := range events {
			events[j].Payload = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", 1000))
		}
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		do := func(id string) {
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders VALUES (?)", fmt.Sprintf("%s-%d", id, i)); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
		}
		do("before")
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5*i)*time.Millisecond)
		failure := w.Write(ctx, tx, events...)
		cancel()
		do("after")
		if err := tx.Commit(); err != nil {
			t.Fatalf("commit after %v: %v", failure, err)
		}
		var orders, rows int
		if err := db.Reads().QueryRowContext(t.Context(),
			"SELECT (SELECT count(*) FROM orders WHERE id LIKE ?1), (SELECT count(*) FROM outbox_events WHERE id = ?2)",
			fmt.Sprintf("%%-%d", i), events[0].ID.String()).Scan(&orders, &rows); err != nil {
			t.Fatal(err)
		}
		if orders != 2 || (rows == 1) != (failure == nil) {
			t.Errorf("%d orders, %d events after %v", orders, rows, failure)
		}
		if failure != nil {
			refused++
		} else {
			written++
		}
	}
	if refused == 0 {
		t.Error("no context ended in a Write")
	}
	t.Logf("%d refused, %d written", refused, written)
}

func TestFilesAreTheOwners(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	db, err := Create(t.Context(), path, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Writes().ExecContext(t.Context(), "CREATE TABLE t (a)"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(path + suffix); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, error %v", suffix, info, err)
		}
	}
	// At the end of links, where there is no file yet.
	real := filepath.Join(t.TempDir(), "real.db")
	for link, to := range map[string]string{"first.db": "second.link", "second.link": real} {
		if err := os.Symlink(to, filepath.Join(filepath.Dir(path), link)); err != nil {
			t.Fatal(err)
		}
	}
	linked, err := Create(t.Context(), filepath.Join(filepath.Dir(path), "first.db"), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = linked.Close() }()
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("through links: %v, error %v", info, err)
	}
	// By a second name it would have a second WAL.
	second := filepath.Join(filepath.Dir(path), "second.db")
	if err := os.Link(path, second); err != nil {
		t.Fatal(err)
	}
	if other, err := Connect(t.Context(), second, 1); err == nil || !strings.Contains(err.Error(), "by two names") {
		t.Errorf("got %v", err)
		_ = other.Close()
	}
	symbolic := filepath.Join(filepath.Dir(path), "symbolic.db")
	if err := os.Symlink(path, symbolic); err != nil {
		t.Fatal(err)
	}
	other, err := Connect(t.Context(), symbolic, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
}
