package postgres

import (
	"testing"

	"github.com/outboxrelay/outbox"
)

// A row that somebody has updated since its claim stands elsewhere. It is settled all the same.
func TestSettleFindsRowsThatMoved(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.SettleMode{outbox.SettleMark, outbox.SettleDelete, outbox.SettleArchive} {
		pool := migrated(t)
		s, owner, lanes := serving(t, pool, inMode(outbox.OutboxEvents(), mode))
		writeOrders(t, pool, 1, "a", "b", "c")
		records, err := s.Claim(t.Context(), lanes, everything)
		if err != nil || len(records) != 3 || records[0].Place == 0 || records[0].Place == records[1].Place {
			t.Fatalf("%s: claimed %d records, error %v, want three with their places", mode, len(records), err)
		}
		exec(t, pool, "UPDATE outbox_events SET metadata = '{}' WHERE aggregate_id = 'b'")
		if n := query[int](t, pool, "SELECT count(*) FROM outbox_events WHERE ctid::text = '(0,4)'"); n != 1 {
			t.Fatalf("%s: the row has not moved", mode)
		}
		settled, err := s.Settle(t.Context(), owner, lanes,
			[]outbox.Outcome{{Record: records[0]}, {Record: records[1]}, {Record: records[2]}})
		if err != nil || settled != (outbox.Settled{Delivered: 3}) {
			t.Errorf("%s: settled %+v, error %v, want all delivered", mode, settled, err)
		}
		if left := query[int](t, pool, "SELECT count(*) FROM outbox_events WHERE status = 'NEW'"); left != 0 {
			t.Errorf("%s: %d rows are left", mode, left)
		}
	}
}

// At the place of a row that is gone another may stand, even one of the same event id, which was
// written again. It is not settled unpublished.
func TestSettleLeavesWhoTookThePlace(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.SettleMode{outbox.SettleMark, outbox.SettleDelete} {
		for _, sameID := range []bool{false, true} {
			pool := migrated(t)
			s, owner, lanes := serving(t, pool, inMode(outbox.OutboxEvents(), mode))
			writeOrders(t, pool, 1, "a")
			records, err := s.Claim(t.Context(), lanes, everything)
			if err != nil || len(records) != 1 {
				t.Fatalf("claimed %d records, error %v", len(records), err)
			}
			place := query[string](t, pool, "SELECT ctid::text FROM outbox_events")
			exec(t, pool, "DELETE FROM outbox_events")
			exec(t, pool, "VACUUM (TRUNCATE false) outbox_events")
			writeOrders(t, pool, 1, "a")
			if sameID {
				exec(t, pool, "DELETE FROM outbox_events")
				exec(t, pool, "VACUUM (TRUNCATE false) outbox_events")
				exec(t, pool, `INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
					VALUES ($1, 'order.placed', now(), 'Order', 'a', 'shop', '{}')`, records[0].ID)
			}
			if now := query[string](t, pool, "SELECT ctid::text FROM outbox_events"); now != place {
				t.Fatalf("the new row stands at %s, want it at %s", now, place)
			}
			if _, err := s.Settle(t.Context(), owner, lanes, []outbox.Outcome{{Record: records[0]}}); err != nil {
				t.Fatal(err)
			}
			left, err := s.Claim(t.Context(), lanes, everything)
			if err != nil || len(left) != 1 || left[0].Position == records[0].Position ||
				(left[0].ID == records[0].ID) != sameID {
				t.Errorf("%s, same id %v: %d rows are left to be delivered, error %v, want the new one", mode, sameID, len(left),
					err)
			}
		}
	}
}
