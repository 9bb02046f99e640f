package operatetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

func readerTests() []behaviour {
	return []behaviour{
		{"a table gets another reader once no process of the former one is alive", movesReader},
	}
}

func movesReader(t *testing.T, s *suite) {
	table := s.Table(t, outbox.OutboxEvents())
	request := outbox.LeaseRequest{Owner: uuid.New(), Name: "relay-1", TTL: time.Minute}
	if _, err := table.Lease(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	b := s.Browser(t, outbox.OutboxEvents())
	if _, err := b.MoveReader(t.Context(), "group:billing", "me", "handlers"); err == nil ||
		!strings.Contains(err.Error(), "relay-1 still serve it for sinks") {
		t.Errorf("with a relay that is alive: %v", err)
	}
	if err := table.Leave(t.Context(), request.Owner); err != nil {
		t.Fatal(err)
	}
	if from, err := b.MoveReader(t.Context(), "group:billing", "me", "handlers"); err != nil || from != "sinks" {
		t.Errorf("without a relay: from %q, error %v", from, err)
	}
	if _, err := table.Lease(t.Context(), request); err == nil ||
		!strings.Contains(err.Error(), "the reader of the table is group:billing") {
		t.Errorf("the former reader leases with error %v", err)
	}
}
