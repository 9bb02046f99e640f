package sqlite

import (
	"testing"

	"github.com/outboxrelay/outbox/internal/test/inboxtest"
)

func TestInboxSuite(t *testing.T) {
	t.Parallel()
	inboxtest.Suite(t, func(t *testing.T) inboxtest.Harness {
		db := filled(t, "CREATE TABLE effects (n INTEGER)")
		return inboxtest.Harness{New: NewInbox, Begin: db.Begin}
	})
}
