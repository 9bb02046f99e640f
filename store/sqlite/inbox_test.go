package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/inboxtest"
)

func TestInboxSuite(t *testing.T) {
	t.Parallel()
	inboxtest.Suite(t, func(t *testing.T) inboxtest.Harness {
		db := filled(t, "CREATE TABLE effects (n INTEGER)")
		return inboxtest.Harness{New: NewInbox, Begin: db.Begin, Earlier: func(column string, by time.Duration) string {
			return fmt.Sprintf("strftime('%%Y-%%m-%%dT%%H:%%M:%%f000Z', %s, '-%d seconds')", column, int(by.Seconds()))
		}}
	})
}
