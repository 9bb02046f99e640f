package operatetest

import (
	"errors"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func backlogTests() []behaviour {
	return []behaviour{{name: "a backlog tells whose it is, the largest share first", run: tellsWhose}}
}

// share is a BacklogShare with an age in hours, which is rounded down; -1 for none.
type share struct {
	value   string
	waiting int
	hours   int
}

func tellsWhose(t *testing.T, s *suite) {
	write := func(tenant, topic, status string, age time.Duration) {
		t.Helper()
		s.Exec(t, `INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, tenant_id, payload, status, created_at)
			VALUES (?1, ?2, ?3, 'shop', ?4, '{}', ?5, ?6)`,
			tabletest.NewID(t).String(), topic, time.Now(), tenant, status, time.Now().Add(-age))
	}
	ask := func(layout outbox.Layout, q operate.BacklogQuery, total int, bounded bool, want ...share) {
		t.Helper()
		got, err := s.Browser(t, layout).Backlog(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if got.Total != total || got.Bounded != bounded || got.By != q.By || len(got.Shares) != len(want) {
			t.Fatalf("%s by %s: got %+v, want %d shares of %d", layout.Table, q.By, got, len(want), total)
		}
		for i, g := range got.Shares {
			hours := -1
			if g.Oldest != nil {
				hours = int(*g.Oldest / 3600)
			}
			if g.Value == nil || (share{*g.Value, g.Waiting, hours}) != want[i] {
				t.Errorf("%s by %s: share %d is %+v, %d hours, want %+v", layout.Table, q.By, i, g, hours, want[i])
			}
		}
	}
	events, all := outbox.OutboxEvents(), operate.BacklogQuery{By: "tenant", Shares: 10, Count: 100}
	ask(events, all, 0, false)
	write("small", "invoice", "NEW", 3*time.Hour)
	write("big", "order", "FAILED", 2*time.Hour)
	write("big", "order", "NEW", time.Hour)
	write("gone", "order", "SENT", 9*time.Hour)
	write("big", "invoice", "NEW", 0)
	ask(events, all, 2, false, share{"big", 3, 2}, share{"small", 1, 3})
	ask(events, operate.BacklogQuery{By: "topic", Shares: 1, Count: 100}, 2, false, share{"invoice", 2, 3})
	two := operate.BacklogQuery{By: "tenant", Shares: 10, Count: 2}
	ask(events, two, 2, true, share{"big", 1, 2}, share{"small", 1, 3})

	s.owe(t, "outbox_events", "a", tabletest.NewID(t), "pending", time.Hour)
	s.owe(t, "outbox_events", "b", tabletest.NewID(t), "pending", 0)
	s.owe(t, "outbox_events", "a", tabletest.NewID(t), "delivered", 0)
	ask(outbox.DeliveriesOf("outbox_events", "a"), all, 1, false, share{"acme", 1, 0})

	s.rows.Place(t, "event_outbox", "order.placed", "1")
	ask(outbox.EventOutbox(), all, 1, false, share{"default", 1, 0})

	nobodys := events
	nobodys.Tenant = ""
	for by, layout := range map[string]outbox.Layout{"key": events, "": events, "tenant": nobodys} {
		_, err := s.Browser(t, layout).Backlog(t.Context(), operate.BacklogQuery{By: by, Shares: 1, Count: 1})
		if !errors.Is(err, operate.ErrFilter) {
			t.Errorf("by %q: got %v, want ErrFilter", by, err)
		}
	}
}
