package operatetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func deliveryTests() []behaviour {
	return []behaviour{
		{name: "an event says which sinks owe it, also when its row is gone", run: saysWhoOwes},
		{name: "what one sink owes is listed, retried and skipped by itself", run: looksAtOneSink},
	}
}

// owe writes what a sink did not take of an event; a retry of 0 is none.
func (s *suite) owe(t *testing.T, table, sink string, id uuid.UUID, status string, retry time.Duration) {
	t.Helper()
	var due, failure, delivered any
	if retry != 0 {
		due, failure = time.Now().Add(retry), "refused by "+sink
	}
	if status == "delivered" {
		delivered = time.Now()
	}
	s.Exec(t, `INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, event_key,
		tenant_id, payload, written_at, status, attempts, next_retry_at, last_error, delivered_at)
		VALUES (?1, ?2, 1, ?3, '["d"]', 'order.placed', '42', 'acme', '{"n": 1}', ?4, ?5, ?6, ?7, ?8, ?9)`,
		table, sink, id.String(), time.Now(), status, len(sink), due, failure, delivered)
}

func saysWhoOwes(t *testing.T, s *suite) {
	id, other := s.rows.Place(t, "outbox_events", "order.placed", "42"), s.rows.Place(t, "outbox_events", "t", "42")
	s.Exec(t, "UPDATE outbox_events SET status = 'SENT' WHERE id = ?1", id.String())
	s.owe(t, "outbox_events", "ccc", id, "delivered", 0)
	s.owe(t, "outbox_events", "bb", id, "dead", 0)
	s.owe(t, "outbox_events", "a", id, "pending", time.Hour)
	s.owe(t, "event_outbox", "elsewhere", id, "pending", 0)
	b := s.Browser(t, outbox.OutboxEvents())
	check := func(d operate.EventDetail) {
		t.Helper()
		if len(d.Deliveries) != 3 || d.DeliveriesHidden {
			t.Fatalf("deliveries %+v, want those of three sinks", d.Deliveries)
		}
		for i, want := range []operate.Delivery{
			{Sink: "a", Destination: "d", Status: "pending", Attempts: 1},
			{Sink: "bb", Destination: "d", Status: "dead", Attempts: 2},
			{Sink: "ccc", Destination: "d", Status: "delivered", Attempts: 3},
		} {
			got := d.Deliveries[i]
			if pending := want.Status == "pending"; pending != (got.NextRetryAt != nil) || pending != (got.LastError != nil) ||
				pending && (*got.LastError != "refused by a" || time.Until(*got.NextRetryAt) < 50*time.Minute) ||
				(want.Status == "delivered") != (got.DeliveredAt != nil) {
				t.Errorf("delivery %+v", got)
			}
			if got.NextRetryAt, got.LastError, got.DeliveredAt = nil, nil, nil; got != want {
				t.Errorf("delivery %+v, want %+v", got, want)
			}
		}
	}
	show := func(by, tenant string) operate.EventDetail {
		t.Helper()
		d, err := b.Show(t.Context(), by, tenant)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := show(id.String(), "")
	if check(d); d.Status != "SENT" {
		t.Errorf("the event is %s", d.Status)
	}
	position := fmt.Sprint(d.Position)
	check(show(position, ""))
	if d := show(other.String(), ""); len(d.Deliveries) != 0 {
		t.Errorf("another event has deliveries %+v", d.Deliveries)
	}
	s.Exec(t, "DELETE FROM outbox_events")
	d = show(id.String(), "acme")
	if check(d); d.Status != operate.StatusGone || d.ID != id || d.Topic != "order.placed" || *d.Key != "42" ||
		*d.Tenant != "acme" || !tabletest.SameJSON(d.Payload, []byte(`{"n":1}`)) ||
		d.Position != 0 || d.Attempts != 0 || d.LastError != nil || d.NextRetryAt != nil || d.Destinations != nil {
		t.Errorf("the event whose row is gone: %+v", d)
	}
	for what, tenant := range map[string]string{other.String(): "", position: "", id.String(): "umbrella"} {
		if _, err := b.Show(t.Context(), what, tenant); !errors.Is(err, operate.ErrNoEvent) {
			t.Errorf("show %s of %q: got %v, want ErrNoEvent", what, tenant, err)
		}
	}
}

func looksAtOneSink(t *testing.T, s *suite) {
	a := s.Browser(t, outbox.DeliveriesOf("outbox_events", "a"))
	var ids []uuid.UUID
	for i := range 4 {
		ids = append(ids, tabletest.NewID(t))
		for _, sink := range []string{"a", "b"} {
			s.owe(t, "outbox_events", sink, ids[i], "pending", time.Hour)
		}
		s.owe(t, "event_outbox", "a", ids[i], "pending", time.Hour)
	}
	s.owe(t, "outbox_events", "a", tabletest.NewID(t), "delivered", 0)
	count := func(where string) int64 { return s.rows.Count(t, "outbox_deliveries", where) }
	list := func(f operate.Filter, want int) []operate.EventRow {
		t.Helper()
		rows, _, err := a.List(t.Context(), f)
		if err != nil || len(rows) != want {
			t.Fatalf("%+v: %d rows, error %v, want %d", f, len(rows), err, want)
		}
		return rows
	}
	list(operate.Filter{}, 5)
	for _, r := range list(operate.Filter{Statuses: []string{"PENDING"}, Tenant: "acme", Key: "42"}, 4) {
		d, err := a.Show(t.Context(), r.ID.String(), "")
		if err != nil || d.Position != r.Position || d.Deliveries != nil || d.Attempts != 1 {
			t.Errorf("row %d is shown as %+v, error %v", r.Position, d, err)
		}
	}
	if n, err := a.RetryNow(t.Context(), operate.Selection{IDs: ids[:1]}, "me", "r"); err != nil || n != 1 {
		t.Errorf("retried %d, error %v, want the one of the sink", n, err)
	}
	if n, err := a.RetryNow(t.Context(), operate.Selection{All: true}, "me", "r"); err != nil || n != 3 {
		t.Errorf("retried %d, error %v, want the three that wait still", n, err)
	}
	skipped(t, a, operate.Selection{IDs: ids[:1]}, 1)
	skipped(t, a, operate.Selection{Filter: operate.Filter{Topic: "order.placed"}}, 3)
	if n := count("status = 'dead'"); n != 4 {
		t.Errorf("%d deliveries are dead, want 4", n)
	}
	if n := count("status = 'pending' AND attempts = 1"); n != 8 { // a sink's name has so many letters
		t.Errorf("%d deliveries of others wait, want all 8", n)
	}
	letters := s.Letters(t, outbox.OutboxEvents(), outbox.DeliveriesOf("", ""))
	found, _, err := letters.List(t.Context(), deadletter.Filter{})
	if err != nil || len(found) != 4 || found[0].Table != "outbox_deliveries" {
		t.Fatalf("letters %+v, error %v", found, err)
	}
	if sum := replay(t, letters, deadletter.Selection{IDs: []uuid.UUID{found[0].ID}}); sum.Letters != 1 {
		t.Errorf("replayed %+v", sum)
	}
	list(operate.Filter{Statuses: []string{"pending"}}, 1)
	actions, _, err := letters.Actions(t.Context(), deadletter.ActionFilter{Action: "skip", Limit: 1})
	if err != nil || len(actions) != 1 {
		t.Errorf("the record is %+v, error %v", actions, err)
	}
}
