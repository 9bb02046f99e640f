package sqlitecold_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// SQLite has one table under all spellings of its name, and so have its leases.
func TestLanesOfAnotherSpelling(t *testing.T) {
	t.Parallel()
	db := filled(t)
	layout := outbox.OutboxEvents()
	layout.Table = "Main.OUTBOX_events"
	s, err := db.OpenTable(t.Context(), layout)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lease(t.Context(),
		outbox.LeaseRequest{Owner: uuid.New(), Name: "test", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	layout.Table = "OUTBOX_events"
	report, err := browser(t, db, layout).Lanes(t.Context(), 10)
	if err != nil || report.Lanes[0].Owner == nil || len(report.Relays) == 0 {
		t.Errorf("nobody serves it under another name: %+v, error %v", report.Relays, err)
	}
}
