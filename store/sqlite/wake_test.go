package sqlite

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

func upAll(t *testing.T, db *DB) error {
	t.Helper()
	return migrations.Up(t.Context(), db.Writes(), "core", "events", "crawl")
}

// Listen is woken by whoever commits, and by nobody else.
func TestListenHearsEveryCommit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	own, other := reopened(t, path), reopened(t, path)
	if err := upAll(t, own); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- own.Listen(ctx, slog.New(slog.DiscardHandler), func(table string) { woken <- table })
	}()
	time.Sleep(100 * time.Millisecond)
	hear := func(want bool, what string) {
		t.Helper()
		wait := tier.Patience()
		if !want {
			wait = 100 * time.Millisecond
		}
		select {
		case table := <-woken:
			if !want || table != "" {
				t.Errorf("%s: woken for %q", what, table)
			}
		case <-time.After(wait):
			if want {
				t.Errorf("%s: not woken", what)
			}
		}
	}
	hear(false, "nothing happened")
	exec(t, own, "INSERT INTO apps (name, namespace) VALUES ('a', 'a')")
	hear(true, "a commit of this process")
	exec(t, other, "INSERT INTO apps (name, namespace) VALUES ('b', 'b')")
	hear(true, "a commit of another")
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO apps (name, namespace) VALUES ('c', 'c')"); err != nil {
		t.Fatal(err)
	}
	hear(false, "nothing was committed")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	hear(false, "it was rolled back")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
