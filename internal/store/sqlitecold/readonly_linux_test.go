package sqlitecold_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// People look into a file that they may not write to.
func TestBrowseFileThatCannotBeWritten(t *testing.T) {
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
	if _, _, err := browser(t, db, outbox.OutboxEvents()).List(t.Context(), operate.Filter{}); err != nil {
		t.Errorf("browse: %v", err)
	}
}
