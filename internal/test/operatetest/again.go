package operatetest

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func againTests() []behaviour {
	return []behaviour{
		{name: "delivered events are delivered again, as they were and in order, once", run: deliversAgain},
		{name: "archived events are delivered again", run: deliversArchivedAgain},
		{name: "of a table whose delivered rows are deleted nothing is replayed, and it says so", run: replaysNothingDeleted},
		{name: "delivered events are chosen by topic, key, tenant, time and destination", run: choosesDelivered},
	}
}

// replayDelivered puts back what is chosen, page by page, and returns what there was.
func replayDelivered(t *testing.T, b *operate.Browser, d operate.Delivered, page int) []operate.Place {
	t.Helper()
	places, until, err := b.Replayable(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	r := operate.Replay{Delivered: d, Actor: operator.Actor, Reason: operator.Reason, Run: tabletest.NewID(t)}
	r.Until = until
	for part := range slices.Chunk(places, page) {
		if n, err := b.ReplayPage(t.Context(), r, part); err != nil || n != len(part) {
			t.Fatalf("put back %d of %d, error %v", n, len(part), err)
		}
		if n, err := b.ReplayPage(t.Context(), r, part); err != nil || n != 0 {
			t.Fatalf("put back %d that are on their way already, error %v", n, err)
		}
	}
	return places
}

func deliversAgain(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	for _, layout := range tabletest.Layouts() {
		u, b := s.rows.Bury(t, layout), s.Browser(t, layout)
		for i := range 7 {
			s.rows.Place(t, layout.Table, fmt.Sprintf("t.%d", i), "k")
		}
		first := u.Settle(tabletest.Arrive)
		d := operate.Delivered{Since: time.Now().Add(-time.Minute)}
		// Interrupted after two, it goes on with the same until.
		places, until, err := b.Replayable(t.Context(), d)
		if err != nil || len(places) != 7 {
			t.Fatalf("%s: %d are chosen, error %v, want 7", layout.Table, len(places), err)
		}
		r := operate.Replay{Delivered: d, Actor: "me", Run: tabletest.NewID(t)}
		r.Until = until
		if n, err := b.ReplayPage(t.Context(), r, places[:2]); err != nil || n != 2 {
			t.Fatalf("%s: put back %d, error %v", layout.Table, n, err)
		}
		again := u.Settle(tabletest.Arrive)
		d.Until = until
		if rest := replayDelivered(t, b, d, 3); len(rest) != 5 {
			t.Errorf("%s: %d are left to put back, want 5", layout.Table, len(rest))
		}
		again = append(again, u.Settle(tabletest.Arrive)...)
		if len(again) != 7 {
			t.Fatalf("%s: %d went out again, want 7", layout.Table, len(again))
		}
		for i, a := range again {
			was := first[i]
			if a.ID != was.ID || a.Position != was.Position || a.Generation != was.Generation+1 || a.Attempts != 0 ||
				string(a.Payload) != string(was.Payload) || a.Sequence != was.Sequence {
				t.Errorf("%s: event %d came back as %+v, it was %+v", layout.Table, i, a, was)
			}
		}
		if places := replayDelivered(t, b, d, 3); len(places) != 0 {
			t.Errorf("%s: %d are chosen again, want none", layout.Table, len(places))
		}
	}
}

func deliversArchivedAgain(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	for i, layout := range []outbox.Layout{
		outbox.OutboxEvents(), outbox.CrawlOutbox(), outbox.OutboxEvents(), outbox.CrawlOutbox(),
	} {
		if i >= 2 { // without retention
			layout.Settle = outbox.SettleArchive
		}
		for _, table := range []string{layout.Table, "outbox_lanes", "outbox_relays", "outbox_archive"} {
			s.Exec(t, "DELETE FROM "+table)
		}
		u, b := s.rows.Bury(t, layout), s.Browser(t, layout)
		for i := range 4 {
			s.rows.Place(t, layout.Table, fmt.Sprintf("t.%d", i), "k")
		}
		first := u.Settle(tabletest.Arrive)
		for round := 1; round <= 2; round++ {
			if layout.Settle != outbox.SettleArchive {
				archive(t, s, layout)
			}
			if n := s.rows.Count(t, layout.Table, "1 = 1"); n != 0 {
				t.Fatalf("%s, round %d: %d rows are left (settle mode %q)", layout.Table, round, n, layout.Settle)
			}
			young := s.rows.Place(t, layout.Table, "young", "k")
			places := replayDelivered(t, b, operate.Delivered{Since: time.Now().Add(-time.Hour), Topic: "t.*"}, 3)
			if len(places) != 4 || !places[0].Archived {
				t.Fatalf("%s, round %d: chosen %+v, want 4 of the archive", layout.Table, round, places)
			}
			again := u.Settle(tabletest.Arrive)
			if len(again) != 5 || again[4].ID != young {
				t.Fatalf("%s: %d went out, want 4 and the young one behind them", layout.Table, len(again))
			}
			for i, a := range again[:4] {
				was := first[i]
				if a.ID != was.ID || a.Position != was.Position || a.Generation != round ||
					!tabletest.SameJSON(a.Payload, was.Payload) ||
					a.AggregateID != was.AggregateID || a.Topic != was.Topic ||
					a.TenantID != was.TenantID || !a.OccurredAt.Equal(was.OccurredAt) || a.Sequence != was.Sequence ||
					string(a.RawMetadata) != string(was.RawMetadata) || len(a.Destinations) != 0 {
					t.Errorf("%s: event %d came back as %+v, it was %+v", layout.Table, i, a, was)
				}
			}
			s.Exec(t, "DELETE FROM "+layout.Table+" WHERE "+layout.Topic+" = 'young'")
		}
	}
}

func replaysNothingDeleted(t *testing.T, s *suite) {
	layout := outbox.OutboxEvents()
	layout.Settle = outbox.SettleDelete
	u := s.rows.Bury(t, layout)
	s.rows.PlaceOrders(t, 2, "a")
	u.Settle(tabletest.Arrive)
	_, _, err := s.Browser(t, layout).Replayable(t.Context(), operate.Delivered{Since: time.Now().Add(-time.Hour)})
	if !errors.Is(err, operate.ErrFilter) || !strings.Contains(err.Error(), "settle mode is delete") {
		t.Errorf("got error %v", err)
	}
}

// archive has retention move everything delivered into the archive table.
func archive(t *testing.T, s *suite, layout outbox.Layout) {
	t.Helper()
	time.Sleep(20 * time.Millisecond)
	k, err := retention.New(s.Retention(t, layout),
		retention.Config{Table: layout.Table, OlderThan: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Purge(t.Context(), 5*time.Minute, nil); err != nil {
		t.Fatal(err)
	}
}

func choosesDelivered(t *testing.T, s *suite) {
	u, b := s.rows.Bury(t, outbox.OutboxEvents()), s.Browser(t, outbox.OutboxEvents())
	s.rows.PlaceOrders(t, 3, "a", "b", "c") // of order.0 to order.2
	s.Exec(t, `UPDATE outbox_events SET destination_topics = '["x", "y"]' WHERE event_topic = 'order.1'`)
	s.Exec(t, "UPDATE outbox_events SET tenant_id = 'acme' WHERE aggregate_id = 'c'")
	u.Settle(tabletest.Arrive)
	s.Exec(t, "UPDATE outbox_events SET processed_at = ?1 WHERE aggregate_id = 'b'", time.Now().Add(-time.Hour))
	now := time.Now()
	for _, c := range []struct {
		d    operate.Delivered
		want int
	}{
		{operate.Delivered{Since: now.Add(-2 * time.Hour)}, 9},
		{operate.Delivered{Since: now.Add(-time.Minute)}, 6},
		{operate.Delivered{Since: now.Add(-2 * time.Hour), Until: now.Add(-time.Minute)}, 3},
		{operate.Delivered{Since: now.Add(-2 * time.Hour), Topic: "order.*"}, 9},
		{operate.Delivered{Since: now.Add(-2 * time.Hour), Topic: "*.2"}, 3},
		{operate.Delivered{Since: now.Add(-2 * time.Hour), Topic: "order"}, 0},
		{operate.Delivered{Since: now.Add(-2 * time.Hour), Topic: "order._"}, 0},
		{operate.Delivered{Since: now.Add(-2 * time.Hour), Key: "a"}, 3},
		{operate.Delivered{Since: now.Add(-2 * time.Hour), Tenant: "acme", Topic: "order.0"}, 1},
		{operate.Delivered{Since: now.Add(-2 * time.Hour), Destination: "y"}, 3},
		{operate.Delivered{Since: now.Add(-2 * time.Hour), Destination: "z"}, 0},
	} {
		if places, _, err := b.Replayable(t.Context(), c.d); err != nil || len(places) != c.want {
			t.Errorf("%+v chooses %d, error %v, want %d", c.d, len(places), err, c.want)
		}
	}
	replayDelivered(t, b, operate.Delivered{Since: now.Add(-2 * time.Hour), Destination: "y", Key: "a"}, 10)
	if again := u.Settle(tabletest.Arrive); len(again) != 1 || strings.Join(again[0].DeliveredTo, " ") != "x" {
		t.Errorf("for y alone %+v went out", again)
	}
	plain := outbox.OutboxEvents()
	plain.DeliveredTo = ""
	undated := outbox.EventOutbox()
	undated.DeliveredAt = ""
	for _, c := range []struct {
		layout outbox.Layout
		d      operate.Delivered
	}{{plain, operate.Delivered{Since: now, Destination: "y"}}, {undated, operate.Delivered{Since: now}},
		{plain, operate.Delivered{}}, {outbox.EventOutbox(), operate.Delivered{Since: now, Destination: "y"}}} {
		if _, _, err := s.Browser(t, c.layout).Replayable(t.Context(), c.d); !errors.Is(err, operate.ErrFilter) {
			t.Errorf("%+v: got %v, want ErrFilter", c.d, err)
		}
	}
}
