package pgcold_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
)

// A row with a time that Go or JSON does not have is shown, and so are those beside it and behind
// it.
func TestBrowseFarTimes(t *testing.T) {
	t.Parallel()
	far, first := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	pool := browsed(t)
	b := browser(t, pool, outbox.OutboxEvents())
	add := func(key, status, next, at string) uuid.UUID {
		t.Helper()
		id := uuid.Must(uuid.NewV7())
		exec(t, pool, `INSERT INTO outbox_events (id, event_topic, source_bc, payload, aggregate_type, aggregate_id, status,
			next_retry_at, occurred_at, created_at, processed_at)
			VALUES ($1, 't', 's', '{}', 'Order', $2, $3, $4::timestamptz, $5::timestamptz, $5::timestamptz, $5::timestamptz)`,
			id, key, status, next, at)
		return id
	}
	show := func(by string) operate.EventDetail {
		t.Helper()
		d, err := b.Show(t.Context(), by, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Error(err)
		}
		return d
	}
	for at, want := range map[string]time.Time{"infinity": far, "-infinity": first, "10000-01-01Z": far,
		"0044-03-15Z BC": first} {
		id := add(at, "FAILED", at, at)
		behind := add(at, "NEW", "-infinity", "2025-01-02Z")
		for _, by := range []string{id.String(), fmt.Sprint(show(id.String()).Position)} {
			d := show(by)
			for what, got := range map[string]*time.Time{"next": d.NextRetryAt, "written": d.WrittenAt,
				"delivered": d.DeliveredAt, "occurred": d.OccurredAt} {
				if got == nil || !got.Equal(want) {
					t.Errorf("%s: %s is shown as %v, want %s", at, what, got, want)
				}
			}
		}
		d := show(behind.String())
		if parked := want.Equal(far); parked != (d.WaitsBehind != nil) ||
			parked && (*d.WaitsBehind != id || !d.NextRetryAt.Equal(far)) {
			t.Errorf("%s: the event behind it waits behind %v until %v", at, d.WaitsBehind, d.NextRetryAt)
		}
	}
	for status, want := range map[string]int{"": 8, "FAILED": 4, "NEW": 4} {
		f := operate.Filter{}
		if status != "" {
			f.Statuses = []string{status}
		}
		rows, _, err := b.List(t.Context(), f)
		if err != nil || len(rows) != want {
			t.Errorf("status %q: %d rows, error %v, want %d", status, len(rows), err, want)
		}
		if _, err := json.Marshal(rows); err != nil {
			t.Error(err)
		}
	}
	if r, err := b.Lanes(t.Context(), 100); err != nil || r.Counted != 8 {
		t.Errorf("lanes count %d, error %v", r.Counted, err)
	}
	if _, err := table(t, pool, outbox.OutboxEvents()).Backlog(t.Context(), 100); err != nil {
		t.Error(err)
	}
}

// So is what sinks owe of it.
func TestDeliveriesFarTimes(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	id := uuid.Must(uuid.NewV7())
	for sink, at := range map[string]string{"a": "infinity", "b": "-infinity"} {
		exec(t, pool, `INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, payload,
			written_at, occurred_at, next_retry_at, delivered_at) VALUES ('outbox_events', $1, 1, $2, '["d"]', 't', '{}',
			$3::timestamptz, $3::timestamptz, $3::timestamptz, $3::timestamptz)`, sink, id, at)
	}
	d, err := browser(t, pool, outbox.OutboxEvents()).Show(t.Context(), id.String(), "")
	if err != nil || len(d.Deliveries) != 2 || d.Deliveries[0].NextRetryAt.Year() != 9999 {
		t.Errorf("the event is shown as %+v, error %v", d, err)
	}
	for _, sink := range []string{"a", "b"} {
		b := browser(t, pool, outbox.DeliveriesOf("outbox_events", sink))
		if rows, _, err := b.List(t.Context(), operate.Filter{}); err != nil || len(rows) != 1 {
			t.Errorf("%d deliveries of %s, error %v", len(rows), sink, err)
		}
	}
	if debts, err := operate.On(pgcold.DB{Pool: pool}).Debts(t.Context()); err != nil || len(debts) != 2 ||
		debts[0].Retrying != 1 {
		t.Errorf("debts %+v, error %v", debts, err)
	}
}
