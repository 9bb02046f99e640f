package sqlitecold_test

import (
	"strings"
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

// A table gets another reader once no process of the former one is alive.
func TestMoveReader(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s, err := db.OpenTable(t.Context(), outbox.OutboxEvents())
	if err != nil {
		t.Fatal(err)
	}
	request := outbox.LeaseRequest{Owner: uuid.New(), Name: "relay-1", TTL: time.Minute}
	if _, err := s.Lease(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	b := browser(t, db, outbox.OutboxEvents())
	if _, err := b.MoveReader(t.Context(), "group:billing", "me", "handlers"); err == nil ||
		!strings.Contains(err.Error(), "relay-1 still serve it for sinks") {
		t.Errorf("with a relay that is alive: %v", err)
	}
	if err := s.Leave(t.Context(), request.Owner); err != nil {
		t.Fatal(err)
	}
	if from, err := b.MoveReader(t.Context(), "group:billing", "me", "handlers"); err != nil || from != "sinks" {
		t.Errorf("without a relay: from %q, error %v", from, err)
	}
	if _, err := s.Lease(t.Context(), request); err == nil ||
		!strings.Contains(err.Error(), "the reader of the table is group:billing") {
		t.Errorf("the former reader leases with error %v", err)
	}
}
