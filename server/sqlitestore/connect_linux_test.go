package sqlitestore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// A worker on a file that it cannot write to would run and fail for ever.
func TestFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testenv.Nobody(t), "outbox.db")
	db, err := sqlite.Create(t.Context(), path, 1)
	if err == nil {
		err = errors.Join(migrations.Up(t.Context(), db.Writes(), "core", "events", "crawl"), db.Close(),
			os.Chmod(path, 0o400))
	}
	if err != nil {
		t.Fatal(err)
	}
	if db, err = sqlite.Connect(t.Context(), path, 1); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := OpenRuns(t.Context(), db); !errors.Is(err, sqlite.ErrReadOnly) {
		t.Errorf("open runs: got error %v, want ErrReadOnly", err)
	}
}
