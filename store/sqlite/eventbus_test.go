package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/internal/store/busevent"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
)

const (
	acmeApp     = "01900000-0000-7000-8000-0000000000a1"
	umbrellaApp = "01900000-0000-7000-8000-0000000000b2"
)

// busFile returns a file with two applications, and a bus for each.
func busFile(t *testing.T) (db *DB, ours, theirs eventbus.Bus[outbox.SQLTx]) {
	t.Helper()
	db = filled(t, `INSERT INTO apps (id, name, namespace) VALUES ('`+acmeApp+`', 'Acme', 'acme'), ('`+umbrellaApp+
		`', 'Umbrella', 'umbrella')`)
	return db, NewEventBus(uuid.MustParse(acmeApp), 0), NewEventBus(uuid.MustParse(umbrellaApp), 0)
}

func inBus(t *testing.T, db *DB, fn func(tx *sql.Tx) error) {
	t.Helper()
	if err := db.inTx(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func busEvent(kind, key string) eventbus.Event {
	return eventbus.Event{EventType: kind, Key: key, Payload: json.RawMessage(`{"n": 1}`)}
}

func TestEventBus(t *testing.T) {
	t.Parallel()
	db, ours, theirs := busFile(t)
	inBus(t, db, func(tx *sql.Tx) error {
		for i := range 5 {
			if err := ours.Offer(t.Context(), tx, busEvent(fmt.Sprintf("order.n%d", i), "k")); err != nil {
				return err
			}
		}
		return theirs.Offer(t.Context(), tx, busEvent("order.theirs", "k"))
	})
	rolledBack := errors.New("rolled back")
	if err := db.inTx(t.Context(), func(tx *sql.Tx) error {
		return errors.Join(ours.Offer(t.Context(), tx, busEvent("order.never", "")), rolledBack)
	}); !errors.Is(err, rolledBack) {
		t.Fatal(err)
	}
	var taken []eventbus.Event
	inBus(t, db, func(tx *sql.Tx) (err error) {
		if n, err := ours.CountPending(t.Context(), tx); err != nil || n != 5 {
			t.Errorf("%d of ours are pending, error %v, want 5", n, err)
		}
		if n, err := NewEventBus(uuid.Nil, 0).CountPending(t.Context(), tx); err != nil || n != 6 {
			t.Errorf("%d of all are pending, error %v, want 6", n, err)
		}
		var kinds []string
		for after := uuid.Nil; ; {
			page, err := ours.ListPending(t.Context(), tx, after, 2)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				kinds, after = append(kinds, e.EventType), e.ID
			}
		}
		if want := []string{"order.n0", "order.n1", "order.n2", "order.n3", "order.n4"}; !slices.Equal(kinds, want) {
			t.Errorf("listed %v, want %v", kinds, want)
		}
		if taken, err = ours.TakePending(t.Context(), tx, 3); err != nil || len(taken) != 3 ||
			taken[0].EventType != "order.n0" || taken[2].EventType != "order.n2" || taken[0].AppID != uuid.MustParse(acmeApp) ||
			string(taken[0].Payload) != `{"n": 1}` {
			t.Errorf("took %+v, error %v", taken, err)
		}
		ids := []uuid.UUID{taken[0].ID, taken[1].ID}
		if n, err := theirs.MarkPublished(t.Context(), tx, ids...); err != nil || n != 0 {
			t.Errorf("another application marked %d, error %v", n, err)
		}
		if n, err := ours.MarkPublished(t.Context(), tx, ids...); err != nil || n != 2 {
			t.Errorf("marked %d, error %v, want 2", n, err)
		}
		if n, err := ours.MarkFailed(t.Context(), tx, taken[0].ID, taken[2].ID); err != nil || n != 1 {
			t.Errorf("marked %d failed, error %v, want the one that is pending", n, err)
		}
		return nil
	})
	inBus(t, db, func(tx *sql.Tx) error {
		e, err := ours.ByEventID(t.Context(), tx, taken[0].EventID)
		if err != nil || e.Status != eventbus.Published || time.Since(*e.PublishedAt).Abs() > time.Minute {
			t.Errorf("got %+v, error %v", e, err)
		}
		if _, err := theirs.ByEventID(t.Context(), tx, taken[0].EventID); !errors.Is(err, eventbus.ErrNoEvent) {
			t.Errorf("another application's event: got %v, want eventbus.ErrNoEvent", err)
		}
		left, err := ours.TakePending(t.Context(), tx, 0)
		if err != nil || len(left) != 2 || left[0].EventType != "order.n3" {
			t.Errorf("left %+v, error %v", left, err)
		}
		return nil
	})
}

func TestEventBusRefuses(t *testing.T) {
	t.Parallel()
	db, ours, _ := busFile(t)
	good := busEvent("order.placed", "")
	good.EventID = uuid.New()
	inBus(t, db, func(tx *sql.Tx) error {
		for says, e := range map[string]eventbus.Event{
			"EventType": {EventType: "placed", Payload: good.Payload},
			"Payload":   {EventType: "order.placed", Payload: json.RawMessage("{")},
			"AppID":     {AppID: uuid.MustParse(umbrellaApp), EventType: "order.placed", Payload: good.Payload},
			"Key":       {EventType: "order.placed", Payload: good.Payload, Key: strings.Repeat("k", 129)},
		} {
			var field *outbox.FieldError
			if err := ours.Offer(t.Context(), tx, e); !errors.As(err, &field) || field.Field != says {
				t.Errorf("got %v, want a FieldError of %s", err, says)
			}
		}
		if err := NewEventBus(uuid.Nil, 0).Offer(t.Context(), tx, good); err == nil ||
			!strings.Contains(err.Error(), "AppID is required") {
			t.Errorf("got %v, want that AppID is required", err)
		}
		if err := NewEventBus(uuid.New(), 0).Offer(t.Context(), tx, good); err == nil ||
			!strings.Contains(err.Error(), "FOREIGN KEY") {
			t.Errorf("unknown application: got %v", err)
		}
		if err := ours.Offer(t.Context(), tx, good); err != nil { // tx is usable after all that
			t.Error(err)
		}
		if err := ours.Offer(t.Context(), tx, good); !errors.Is(err, outbox.ErrDuplicateEvent) {
			t.Errorf("got %v, want ErrDuplicateEvent", err)
		}
		return nil
	})
	if n := single(t, db, "SELECT count(*) FROM event_outbox"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// What follows a row that waits for a retry in its key waits too.
func TestEventBusKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"k", ""} { // without a key, an application's events are one sequence
		t.Run("key "+key, func(t *testing.T) { takesKeyInOrder(t, key) })
	}
}

func takesKeyInOrder(t *testing.T, key string) {
	db, ours, theirs := busFile(t)
	inBus(t, db, func(tx *sql.Tx) error {
		return errors.Join(ours.Offer(t.Context(), tx, busEvent("a.waits", key)),
			ours.Offer(t.Context(), tx, busEvent("a.behind", key)),
			ours.Offer(t.Context(), tx, busEvent("a.other", "o")), theirs.Offer(t.Context(), tx, busEvent("b.same", key)),
			ours.Offer(t.Context(), tx, busEvent("a.free", "free")))
	})
	for later, want := range map[time.Duration][]string{time.Hour: {"a.other", "b.same", "a.free"},
		-time.Hour: {"a.waits", "a.behind", "a.other", "b.same", "a.free"}} {
		inBus(t, db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(t.Context(), "UPDATE event_outbox SET next_retry_at = ? WHERE event_type = 'a.waits'",
				stamp(time.Now().Add(later))); err != nil {
				return err
			}
			events, err := NewEventBus(uuid.Nil, 0).TakePending(t.Context(), tx, 10)
			var kinds []string
			for _, e := range events {
				kinds = append(kinds, e.EventType)
			}
			if !slices.Equal(kinds, want) {
				t.Errorf("took %v, want %v", kinds, want)
			}
			return err
		})
	}
}

func TestEventBusPlans(t *testing.T) {
	t.Parallel()
	db := filled(t)
	for name, indexes := range map[string][]string{
		"bus_by_event_id":    {"sqlite_autoindex_event_outbox_2 (event_id=?)"},
		"bus_count_pending":  {"COVERING INDEX idx_event_outbox_pending (status=?)"},
		"bus_list_pending":   {"idx_event_outbox_pending (status=? AND id>?)"},
		"bus_served":         {"outbox_relays USING PRIMARY KEY (table_name=?)"},
		"bus_letter":         {"idx_event_outbox_pending (status=? AND id=?)"},
		"bus_mark_failed":    {"idx_event_outbox_pending (status=? AND id=?)"},
		"bus_mark_published": {"idx_event_outbox_pending (status=? AND id=?)"},
		"bus_take_pending": {"SCAN e USING INDEX event_outbox_undelivered",
			"SEARCH b USING INDEX event_outbox_waiting (next_retry_at>?)"},
	} {
		statement, args, err := cold.Statement(sqlitecold.DB{}, name, busevent.Query{})
		if err != nil {
			t.Fatal(err)
		}
		plan := planOf(t, db, statement, args...)
		for _, index := range indexes {
			if !strings.Contains(plan, index) || strings.Contains(plan, "FOR ORDER BY") {
				t.Errorf("%s is not served by %s:\n%s", name, index, plan)
			}
		}
	}
}

// Fail keeps a letter of each event, which a replay makes pending again.
func TestEventBusFailKeepsLetters(t *testing.T) {
	t.Parallel()
	db, ours, theirs := busFile(t)
	inBus(t, db, func(tx *sql.Tx) error {
		return errors.Join(ours.Offer(t.Context(), tx, busEvent("a.first", "k")),
			ours.Offer(t.Context(), tx, busEvent("a.second", "")), theirs.Offer(t.Context(), tx, busEvent("b.other", "")))
	})
	var wrong *deadletter.ReasonError
	inBus(t, db, func(tx *sql.Tx) error {
		taken, err := NewEventBus(uuid.Nil, 0).TakePending(t.Context(), tx, 0)
		if err != nil || len(taken) != 3 {
			t.Fatalf("took %d, %v", len(taken), err)
		}
		if _, err := ours.Fail(t.Context(), tx, outbox.Failure{Reason: "Panic"}, taken[0].ID); !errors.As(err, &wrong) {
			t.Errorf("a job's reason: %v", err)
		}
		why := outbox.Failure{Reason: outbox.ReasonHandlerTimeout, Error: "no answer"}
		if n, err := ours.Fail(t.Context(), tx, why, taken[0].ID, taken[0].ID, taken[2].ID); err != nil || n != 1 {
			t.Errorf("failed %d (%v), want one: the other is theirs", n, err)
		}
		if n, err := ours.MarkFailed(t.Context(), tx, taken[1].ID); err != nil || n != 1 {
			t.Errorf("failed %d (%v)", n, err)
		}
		return nil
	})
	if _, err := ours.CountPending(t.Context(), db.Writes()); !errors.Is(err, outbox.ErrNoTransaction) {
		t.Errorf("of a pool: %v, want ErrNoTransaction", err)
	}
	d, err := OpenDeadLetters(t.Context(), db, DeadLettersConfig{Layouts: []outbox.Layout{outbox.EventOutbox()}})
	if err != nil {
		t.Fatal(err)
	}
	listed, _, err := d.List(t.Context(), deadletter.Filter{})
	if err != nil || len(listed) != 2 {
		t.Fatalf("%d letters (%v), want 2", len(listed), err)
	}
	for _, l := range listed {
		want := map[string][2]string{"a.first": {"HandlerTimeout", "no answer"},
			"a.second": {"DeliveryFailed", "marked as failed"}}[l.Type]
		if l.Source != deadletter.SourceEvent || l.Reason != want[0] || l.LastError != want[1] || l.Attempts != 1 ||
			l.Table != "event_outbox" || l.Position == nil {
			t.Errorf("letter %+v", l)
		}
	}
	replayed, err := d.ReplayPage(t.Context(),
		deadletter.ReplayRequest{Selection: deadletter.Selection{All: true}, Operator: deadletter.Operator{Actor: "test"},
			Limit: 10})
	if err != nil || replayed.Replayed["event_outbox"] != 2 {
		t.Errorf("replayed %+v, %v", replayed, err)
	}
	inBus(t, db, func(tx *sql.Tx) error {
		if n, err := ours.CountPending(t.Context(), tx); err != nil || n != 2 {
			t.Errorf("%d pending after the replay (%v), want 2", n, err)
		}
		return nil
	})
}
