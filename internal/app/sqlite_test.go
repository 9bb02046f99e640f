package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxrelay/outbox"
)

// The parts of a process have one DB between them, until the last has closed it.
func TestPartsShareAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	url := "sqlite:" + path
	if err := MigrationsOf(url).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	var databases shared
	gateway, err := databases.open(t.Context(), url, use{conns: 8})
	if err != nil {
		t.Fatal(err)
	}
	relay, err := databases.open(t.Context(), url, use{conns: 17, relay: true})
	if err != nil {
		t.Fatal(err)
	}
	file := gateway.(*sqliteDatabase).file
	if file.users != 2 || gateway.(*sqliteDatabase).db != relay.(*sqliteDatabase).db {
		t.Errorf("two DBs for one process, %d users", file.users)
	}
	if n := file.db.Reads().Stats().MaxOpenConnections; n != 25 {
		t.Errorf("%d connections to read with, want 25", n)
	}
	for range 2 { // a second Close of the same part counts for nothing
		gateway.Close()
	}
	writing, err := relay.Writing(t.Context(), outbox.WriterConfig{Table: "outbox_events"})
	if err != nil {
		t.Fatal(err)
	}
	event, err := writing.Prepare(t.Context(), outbox.Event{Topic: "a", Source: "test", Payload: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writing.Commit(t.Context(), []outbox.Event{event}, nil); err != nil {
		t.Errorf("after another part has closed: %v", err)
	}
	writing.Close()
	relay.Close()
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the WAL is left: %v", err)
	}
	again, err := databases.open(t.Context(), url, use{conns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if n := file.db.Reads().Stats().MaxOpenConnections; n != 1 {
		t.Errorf("%d connections to read with, want 1", n)
	}
}
