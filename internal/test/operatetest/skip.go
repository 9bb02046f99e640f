package operatetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/relay"
)

func skipTests() []behaviour {
	return []behaviour{
		{name: "a skipped event is a dead letter, its key goes on, and a replay puts it back", run: skipsEvents},
		{name: "of a settle and a skip the first counts", run: skipsBesideSettle},
		{name: "events are skipped by key, topic and tenant, page by page", run: skipsSelections},
		{name: "events that are skipped beside a relay arrive or have a letter", run: skipsBesideRelay},
	}
}

var skip = operate.Skip{Actor: "me@host", Reason: "test data",
	Run: uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")}

// skipped skips what is chosen and wants so many.
func skipped(t *testing.T, b *operate.Browser, s operate.Selection, want int) {
	t.Helper()
	if n, _, err := b.Undelivered(t.Context(), s); err != nil || n < want {
		t.Errorf("%+v chooses %d, error %v, want at least %d", s, n, err, want)
	}
	if n, err := b.SkipPage(t.Context(), s, skip, 100); err != nil || n != want {
		t.Fatalf("%+v: skipped %d, error %v, want %d", s, n, err, want)
	}
}

func skipsEvents(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	for _, layout := range tabletest.Layouts() {
		t.Run(layout.Table, func(t *testing.T) {
			var ids []uuid.UUID
			for i := range 3 {
				ids = append(ids, s.rows.Place(t, layout.Table, fmt.Sprintf("t.%d", i), "k"))
			}
			s.Exec(t, "UPDATE "+layout.Table+" SET "+layout.Attempts+" = 2, "+layout.NextRetryAt+" = ?2 WHERE "+layout.ID+
				" = ?1", ids[0].String(), time.Now().Add(time.Hour))
			u, b, d := s.rows.Bury(t, layout), s.Browser(t, layout), s.letters(t)
			if records, err := u.Store.Claim(t.Context(), u.Lanes, outbox.ClaimLimit{Records: 10, Bytes: 1 << 20}); err != nil ||
				len(records) != 0 {
				t.Fatalf("claimed %d behind one that waits, error %v", len(records), err)
			}
			skipped(t, b, operate.Selection{IDs: ids[:1]}, 1)
			letters, err := d.Show(t.Context(), ids[0], "")
			if err != nil || len(letters) != 1 {
				t.Fatalf("letters %+v, error %v", letters, err)
			}
			if l := letters[0]; l.LastError != "skipped by me@host: test data" || l.State != deadletter.StatePending ||
				l.Reason != "DeliveryFailed" || l.Attempts != 2 || l.Destination != "" {
				t.Errorf("letter %+v", l)
			}
			var gone []uuid.UUID
			for _, r := range u.Settle(tabletest.Arrive) {
				gone = append(gone, r.ID)
			}
			if !slices.Equal(gone, ids[1:]) {
				t.Errorf("after the skip %v went out, want %v", gone, ids[1:])
			}
			if sum := replay(t, d, deadletter.Selection{IDs: []uuid.UUID{letters[0].ID}}); sum.Letters != 1 {
				t.Fatalf("replayed %+v", sum)
			}
			if again := u.Settle(tabletest.Arrive); len(again) != 1 || again[0].ID != ids[0] || again[0].Generation != 1 {
				t.Errorf("after the replay %+v went out", again)
			}
			skipped(t, b, operate.Selection{IDs: ids}, 0)
			actions, _, err := d.Actions(t.Context(), deadletter.ActionFilter{Action: "skip", Limit: 1})
			if err != nil || len(actions) != 1 || actions[0].Letters != 1 || actions[0].Actor != "me@host" ||
				*actions[0].Reason != "test data" {
				t.Errorf("the record is %+v, error %v", actions, err)
			}
		})
	}
}

func skipsBesideSettle(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	for _, layout := range tabletest.Layouts() {
		u, b, d := s.rows.Bury(t, layout), s.Browser(t, layout), s.letters(t)
		first := s.rows.Place(t, layout.Table, "t", "k")
		claimed, err := u.Store.Claim(t.Context(), u.Lanes, outbox.ClaimLimit{Records: 10, Bytes: 1 << 20})
		if err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %d, error %v", len(claimed), err)
		}
		skipped(t, b, operate.Selection{IDs: []uuid.UUID{first}}, 1)
		for _, o := range []outbox.Outcome{
			{Record: claimed[0], State: outbox.Delivered},
			{Record: claimed[0], State: outbox.Retry, Attempts: 1, Failures: []outbox.Failure{{Error: "no"}}},
			{Record: claimed[0], State: outbox.Dead, Attempts: 1,
				Failures: []outbox.Failure{{Destination: "t", Reason: outbox.ReasonDeliveryFailed, Error: "no"}}},
		} {
			if got, err := u.Store.Settle(t.Context(), u.Owner, u.Lanes, []outbox.Outcome{o}); err != nil ||
				got != (outbox.Settled{Lost: 1}) {
				t.Errorf("%s: settled %+v after the skip, error %v, want it lost", layout.Table, got, err)
			}
		}
		if letters, err := d.Show(t.Context(), first, ""); err != nil || len(letters) != 1 {
			t.Errorf("%s: %d letters, error %v, want the one of the skip", layout.Table, len(letters), err)
		}
		second := s.rows.Place(t, layout.Table, "t", "k")
		u.Settle(tabletest.Arrive)
		skipped(t, b, operate.Selection{IDs: []uuid.UUID{second}}, 0)
		if _, err := d.Show(t.Context(), second, ""); !errors.Is(err, deadletter.ErrNoLetter) {
			t.Errorf("%s: a delivered event has a letter, error %v", layout.Table, err)
		}
	}
}

func skipsSelections(t *testing.T, s *suite) {
	b := s.Browser(t, outbox.OutboxEvents())
	s.rows.PlaceOrders(t, 4, "a", "b", "c") // of order.0 to order.3
	s.Exec(t, "UPDATE outbox_events SET tenant_id = 'acme' WHERE aggregate_id = 'c'")
	skipped(t, b, operate.Selection{}, 0)
	skipped(t, b, operate.Selection{Filter: operate.Filter{Key: "none"}}, 0)
	skipped(t, b, operate.Selection{Filter: operate.Filter{Key: "a", Topic: "order.2"}}, 1)
	skipped(t, b, operate.Selection{Filter: operate.Filter{Key: "a"}}, 3)
	skipped(t, b, operate.Selection{Filter: operate.Filter{Topic: "*r.0"}}, 2)
	ofAcme := operate.Selection{Filter: operate.Filter{Tenant: "acme"}}
	if n, err := b.SkipPage(t.Context(), ofAcme, skip, 2); err != nil || n != 2 {
		t.Fatalf("skipped %d, error %v, want 2", n, err)
	}
	if left := s.Value(t,
		"SELECT min(event_topic) FROM outbox_events WHERE status = 'NEW' AND tenant_id = 'acme'"); left != "order.3" {
		t.Errorf("the oldest of acme's that is left is %s, want order.3", left)
	}
	skipped(t, b, operate.Selection{All: true}, 4)
	if n := s.Value(t,
		"SELECT count(*) FROM job_dlq l JOIN outbox_events e ON e.id = l.original_job_id AND e.position = l.position WHERE "+
			"e.status = 'DEAD'"); n != "12" {
		t.Errorf("%s letters, want 12", n)
	}
	if n := s.Value(t,
		"SELECT count(*) FROM job_dlq l JOIN apps a ON a.id = l.app_id WHERE a.namespace = 'acme'"); n != "4" {
		t.Errorf("%s letters of acme, want 4", n)
	}
	plain := outbox.OutboxEvents()
	plain.Tenant, plain.Key, plain.KeyScope = "", "", nil
	for _, sel := range []operate.Selection{{Filter: operate.Filter{Tenant: "acme"}}, {Filter: operate.Filter{Key: "a"}}} {
		if _, err := s.Browser(t, plain).SkipPage(t.Context(), sel, skip, 1); !errors.Is(err, operate.ErrFilter) {
			t.Errorf("%+v: got %v, want ErrFilter", sel, err)
		}
	}
}

// A relay delivers while an operator skips at random. Whoever is first with an event, there is no
// third state and no letter too many.
func skipsBesideRelay(t *testing.T, s *suite) {
	const keys, each = 20, 30
	for i := range each {
		for k := range keys {
			s.rows.Place(t, "outbox_events", fmt.Sprintf("t.%d", i%3), fmt.Sprint(k))
		}
	}
	sink := outboxSink(func([]outbox.Delivery) { time.Sleep(2 * time.Millisecond) })
	r, err := relay.New(tabletest.OneTable{Store: s.Table(t, outbox.OutboxEvents())}, sink, relay.Config{
		Tables: []relay.Table{{Layout: outbox.OutboxEvents()}}, Logger: slog.New(slog.DiscardHandler), BatchRecords: 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	b := s.Browser(t, outbox.OutboxEvents())
	total := 0
	for i := 0; ; i++ {
		n, err := b.SkipPage(t.Context(), operate.Selection{Filter: operate.Filter{Topic: fmt.Sprintf("t.%d", i%3)}}, skip, 5)
		if err != nil {
			t.Fatal(err)
		}
		total += n
		if left, _, err := b.Undelivered(t.Context(), operate.Selection{All: true}); err != nil {
			t.Fatal(err)
		} else if left == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	running.Wait()
	sent, dead := s.rows.Count(t, "outbox_events", "status = 'SENT'"), s.rows.Count(t, "outbox_events", "status = 'DEAD'")
	letters := s.rows.Count(t, "job_dlq", "source = 'event'")
	if sent+dead != keys*each || letters != dead || dead != int64(total) || sent == 0 || dead == 0 {
		t.Errorf("%d delivered, %d dead, %d letters, %d skipped of %d", sent, dead, letters, total, keys*each)
	}
}

// outboxSink takes everything, after a look at it.
type outboxSink func([]outbox.Delivery)

// Publish implements outbox.Sink.
func (f outboxSink) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	f(batch)
	return make([]outbox.Result, len(batch))
}
