package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/grouptest"
	"github.com/outboxrelay/outbox/internal/test/sqlitetest"
	"github.com/outboxrelay/outbox/store/sqlite"
)

func TestGroupSuite(t *testing.T) {
	t.Parallel()
	files := sqlitetest.Files(t)
	grouptest.Suite(t, func(t *testing.T) grouptest.Harness {
		db := files(t)
		h := sqlitetest.Harness(db)
		h.Exec(t, "CREATE TABLE effects (key TEXT, n INTEGER)")
		return grouptest.Harness{StoreHarness: h, DB: db, Tx: sqlite.Transactions(db), Layout: outbox.OutboxEvents(),
			TakeTurns: true, Foreign: map[string]error{
				"a file is locked":    fmt.Errorf("%w: another process has it", sqlite.ErrBusy),
				"a file was replaced": sqlite.ErrReplaced, "a file is read-only": sqlite.ErrReadOnly,
				"a file is damaged": sqlite.ErrDamaged,
			}}
	})
}
