package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/internal/store/busevent"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/store/postgres"
)

// bus is a database with event_outbox, and two applications in it.
type bus struct {
	eventbus.Bus[pgx.Tx]
	*pgxpool.Pool
	url      string
	app, his uuid.UUID
}

func newBus(t *testing.T) bus {
	t.Helper()
	url := newDatabase(t, "core", "events")
	pool := newPool(t, url)
	b := bus{Bus: postgres.NewEventBus(0), Pool: pool, url: url, app: uuid.New(), his: uuid.New()}
	_, err := pool.Exec(t.Context(),
		"INSERT INTO apps (id, name, namespace) VALUES ($1, 'Mine', 'mine'), ($2, 'His', 'his')", b.app, b.his)
	ok(t, err)
	return b
}

// inTx runs f in a transaction and commits it.
func (b bus) inTx(t *testing.T, f func(tx pgx.Tx)) {
	t.Helper()
	ok(t, pgx.BeginFunc(t.Context(), b, func(tx pgx.Tx) error { f(tx); return nil }))
}

func (b bus) event(eventType, key string) eventbus.Event {
	return eventbus.Event{ID: uuid.New(), AppID: b.app, EventID: uuid.New(), EventType: eventType, Key: key,
		Payload: json.RawMessage(`{"a": 1}`)}
}

func (b bus) offer(t *testing.T, events ...eventbus.Event) {
	t.Helper()
	b.inTx(t, func(tx pgx.Tx) {
		for _, e := range events {
			ok(t, b.Offer(t.Context(), tx, e))
		}
	})
}

func (b bus) take(t *testing.T, tx pgx.Tx, limit int) []eventbus.Event {
	t.Helper()
	events, err := b.TakePending(t.Context(), tx, limit)
	ok(t, err)
	return events
}

func (b bus) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := b.Begin(t.Context())
	ok(t, err)
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	return tx
}

func types(events []eventbus.Event) string {
	var s []string
	for _, e := range events {
		s = append(s, e.EventType)
	}
	return strings.Join(s, " ")
}

// Plan 05-01: offer inside a transaction, published_at not set, a duplicate event id refused by
// name.
func TestEventBusOffer(t *testing.T) {
	b := newBus(t)
	e := b.event("order.placed", "42")
	tx := b.begin(t)
	ok(t, b.Offer(t.Context(), tx, e))
	if _, err := b.ByEventID(t.Context(), b.begin(t), e.EventID); !errors.Is(err, eventbus.ErrNoEvent) {
		t.Errorf("seen before the commit: %v", err)
	}
	ok(t, tx.Commit(t.Context()))
	tx = b.begin(t)
	got, err := b.ByEventID(t.Context(), tx, e.EventID)
	ok(t, err)
	want := e
	want.Status = eventbus.Pending
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}

	copied := b.event("order.copied", "")
	copied.EventID = e.EventID
	if err := b.Offer(t.Context(), tx, copied); !errors.Is(err, outbox.ErrDuplicateEvent) ||
		!strings.Contains(err.Error(), e.EventID.String()) {
		t.Errorf("got %v, want ErrDuplicateEvent with the id", err)
	}
	// Ids assigned; tx is usable.
	ok(t, b.Offer(t.Context(), tx, eventbus.Event{AppID: b.app, EventType: "a.b", Payload: json.RawMessage("null")}))
	ok(t, tx.Commit(t.Context()))
	if v := one[string](t, b,
		"SELECT substr(id::text, 15, 1) || substr(event_id::text, 15, 1) FROM event_outbox WHERE event_type "+
			"= 'a.b'"); v != "77" {
		t.Errorf("ids of versions %s, want two UUIDv7", v)
	}

	tx = b.begin(t)
	ok(t, b.Offer(t.Context(), tx, b.event("rolled.back", "")))
	ok(t, tx.Rollback(t.Context()))
	if n := one[int](t, b, "SELECT count(*) FROM event_outbox"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

func TestEventBusOfferRefusesBeforeTheInsert(t *testing.T) {
	b := newBus(t)
	tx := b.begin(t)
	for _, c := range []struct {
		field string
		spoil func(*eventbus.Event)
	}{
		{"AppID", func(e *eventbus.Event) { e.AppID = uuid.Nil }},
		{"EventType", func(e *eventbus.Event) { e.EventType = "" }},
		{"EventType", func(e *eventbus.Event) { e.EventType = "placed" }},
		{"EventType", func(e *eventbus.Event) { e.EventType = "order..placed" }},
		{"EventType", func(e *eventbus.Event) { e.EventType = "order.placed." }},
		{"EventType", func(e *eventbus.Event) { e.EventType = "order.plac ed" }},
		{"EventType", func(e *eventbus.Event) { e.EventType = "a." + strings.Repeat("b", 149) }},
		{"Key", func(e *eventbus.Event) { e.Key = strings.Repeat("é", 129) }},
		{"Payload", func(e *eventbus.Event) { e.Payload = nil }},
		{"Payload", func(e *eventbus.Event) { e.Payload = json.RawMessage(`"\u0000"`) }},
		{"Payload", func(e *eventbus.Event) { e.Payload = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`) }},
	} {
		e := b.event("order.placed", "")
		c.spoil(&e)
		err := b.Offer(t.Context(), tx, e)
		var field *outbox.FieldError
		if !errors.As(err, &field) || field.Field != c.field || !errors.Is(err, outbox.ErrInvalidEvent) {
			t.Errorf("got %v, want a FieldError of %s", err, c.field)
		}
	}
	longest := b.event("a."+strings.Repeat("b", 148), strings.Repeat("é", 128))
	ok(t, b.Offer(t.Context(), tx, longest))
	if err := postgres.NewEventBus(7).Offer(t.Context(), tx, b.event("a.b", "")); !errors.Is(err,
		outbox.ErrPayloadTooLarge) {
		t.Errorf("8 bytes of payload where 7 are allowed: %v", err)
	}
	ok(t, tx.Commit(t.Context()))
}

// Plan 05-01: takePending gives 100 by default, oldest first.
func TestEventBusTakeAndMark(t *testing.T) {
	b := newBus(t)
	var events []eventbus.Event
	for i := range 130 {
		events = append(events, b.event(fmt.Sprintf("e.%d", i), "")) // random row ids: the order is that of the offers
	}
	b.offer(t, events...)
	tx := b.begin(t)
	taken := b.take(t, tx, 0)
	if len(taken) != 100 || types(taken) != types(events[:100]) {
		t.Fatalf("took %d: %s, want the 100 oldest in order", len(taken), types(taken))
	}
	n, err := b.MarkPublished(t.Context(), tx, taken[0].ID, taken[1].ID, uuid.New())
	if err != nil || n != 2 {
		t.Errorf("marked %d published (%v), want 2", n, err)
	}
	n, err = b.MarkFailed(t.Context(), tx, taken[1].ID, taken[2].ID)
	if err != nil || n != 1 {
		t.Errorf("marked %d failed (%v), want 1: a published event stays so", n, err)
	}
	n, err = b.MarkPublished(t.Context(), tx, taken[2].ID)
	if err != nil || n != 0 {
		t.Errorf("%d failed events became published (%v): failed is final", n, err)
	}
	n, err = b.MarkPublished(t.Context(), tx)
	if err != nil || n != 0 {
		t.Errorf("no ids: %d, %v", n, err)
	}
	ok(t, tx.Commit(t.Context()))

	const relay = "INSERT INTO outbox_relays (table_name, owner, name, expires_at) SELECT 'event_outbox', " +
		"gen_random_uuid(), 'relay', now() + $1::interval"
	_, err = b.Exec(t.Context(), relay, "1 minute")
	ok(t, err)
	b.inTx(t, func(tx pgx.Tx) {
		if got, err := b.TakePending(t.Context(), tx, 2); !errors.Is(err, eventbus.ErrServed) || got != nil {
			t.Errorf("beside a relay %d events were taken, error %v", len(got), err)
		}
	})
	_, err = b.Exec(t.Context(), "UPDATE outbox_relays SET expires_at = now()") // it is gone
	ok(t, err)
	b.inTx(t, func(tx pgx.Tx) {
		if got := b.take(t, tx, 2); types(got) != "e.3 e.4" {
			t.Errorf("took %s after the first three ended, want e.3 e.4", types(got))
		}
		if n, err := b.CountPending(t.Context(), tx); err != nil || n != 127 {
			t.Errorf("%d pending (%v), want 127", n, err)
		}
		for i, want := range []eventbus.Status{eventbus.Published, eventbus.Published, eventbus.Failed,
			eventbus.Pending} {
			e, err := b.ByEventID(t.Context(), tx, events[i].EventID)
			if err != nil || e.Status != want || (e.PublishedAt != nil) != (want == eventbus.Published) {
				t.Errorf("event %d is %s, published at %v (%v), want %s", i, e.Status, e.PublishedAt, err, want)
			}
		}
	})
}

func TestEventBusListsPagesByID(t *testing.T) {
	b := newBus(t)
	var want []string
	for range 25 {
		e := b.event("e.e", "")
		b.offer(t, e)
		want = append(want, e.ID.String())
	}
	slices.Sort(want)
	b.inTx(t, func(tx pgx.Tx) {
		var got []string
		for after := uuid.Nil; ; {
			page, err := b.ListPending(t.Context(), tx, after, 10)
			ok(t, err)
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				got = append(got, e.ID.String())
			}
			after = page[len(page)-1].ID
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestEventBusTakersShareWithoutOvertaking(t *testing.T) {
	b := newBus(t)
	b.offer(t, b.event("a.1", "a"), b.event("b.1", "b"), b.event("a.2", "a"), b.event("x.1", ""), b.event("b.2", "b"),
		b.event("x.2", ""))
	first, second := b.begin(t), b.begin(t)
	if got := types(b.take(t, first, 2)); got != "a.1 b.1" {
		t.Fatalf("first took %s", got)
	}
	if got := types(b.take(t, second, 10)); got != "x.1 x.2" {
		t.Errorf("second took %s, want what is not behind the first one's keys", got)
	}
	ok(t, second.Rollback(t.Context()))

	taken := b.take(t, first, 3)
	if got := types(taken); got != "a.1 b.1 a.2" {
		t.Errorf("first took %s: its own locks are no obstacle", got)
	}
	_, err := b.MarkPublished(t.Context(), first, taken[0].ID)
	ok(t, err)
	ok(t, first.Commit(t.Context()))

	// A retry that a relay left behind holds its key, and no other, back.
	_, err = b.Exec(t.Context(),
		"UPDATE event_outbox SET next_retry_at = now() + interval '1 hour' WHERE event_type = 'a.2'")
	ok(t, err)
	b.offer(t, b.event("a.3", "a"))
	b.inTx(t, func(tx pgx.Tx) {
		if got := types(b.take(t, tx, 10)); got != "b.1 x.1 b.2 x.2" {
			t.Errorf("took %s, want nothing of key a", got)
		}
	})
	// The same key of another application is another key.
	other := b.event("a.his", "a")
	other.AppID = b.his
	b.offer(t, other)
	b.inTx(t, func(tx pgx.Tx) {
		if got := types(b.take(t, tx, 10)); got != "b.1 x.1 b.2 x.2 a.his" {
			t.Errorf("took %s", got)
		}
	})
}

// Without a key, the events of an application are one sequence.
func TestEventBusTakersKeepTheSequence(t *testing.T) {
	b := newBus(t)
	other := b.event("his.1", "")
	other.AppID = b.his
	b.offer(t, b.event("x.1", ""), b.event("x.2", ""), other)
	first, second := b.begin(t), b.begin(t)
	if got := types(b.take(t, first, 1)); got != "x.1" {
		t.Fatalf("first took %s", got)
	}
	if got := types(b.take(t, second, 10)); got != "his.1" {
		t.Errorf("second took %s, want nothing behind x.1", got)
	}
	ok(t, second.Rollback(t.Context()))
	ok(t, first.Rollback(t.Context()))
	_, err := b.Exec(t.Context(),
		"UPDATE event_outbox SET next_retry_at = now() + interval '1 hour' WHERE event_type = 'x.1'")
	ok(t, err)
	b.inTx(t, func(tx pgx.Tx) {
		if got := types(b.take(t, tx, 10)); got != "his.1" {
			t.Errorf("took %s while x.1 waits for a retry", got)
		}
	})
}

// Six takers, some of which roll back: all events once, and per key in the order of their offers.
func TestEventBusConcurrentTakersKeepOrder(t *testing.T) {
	b := newBus(t)
	const total = 300
	var events []eventbus.Event
	for i := range total {
		events = append(events, b.event(fmt.Sprintf("e.%03d", i), fmt.Sprint(i%7)))
	}
	b.offer(t, events...)
	_, err := b.Exec(t.Context(), "CREATE TABLE arrived (n bigserial, key text, event_type text)")
	ok(t, err)
	turn := func(r *rand.Rand) (left int, err error) {
		err = pgx.BeginFunc(t.Context(), b, func(tx pgx.Tx) error {
			taken, err := b.TakePending(t.Context(), tx, 1+r.IntN(20))
			if err != nil {
				return err
			}
			time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			if r.IntN(5) == 0 {
				return errBusiness
			}
			for _, e := range taken {
				if _, err := tx.Exec(t.Context(), "INSERT INTO arrived (key, event_type) VALUES ($1, $2)", e.Key,
					e.EventType); err != nil {
					return err
				}
				if n, err := b.MarkPublished(t.Context(), tx, e.ID); err != nil || n != 1 {
					return fmt.Errorf("marked %d: %w", n, err)
				}
			}
			left, err = b.CountPending(t.Context(), tx)
			return err
		})
		if errors.Is(err, errBusiness) {
			return total, nil
		}
		return left, err
	}
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(i)))
			for left := total; left > 0; {
				var err error
				if left, err = turn(r); err != nil {
					t.Errorf("taker %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	if n := one[int](t, b, "SELECT count(DISTINCT event_type) FROM arrived"); n != total ||
		one[int](t, b, "SELECT count(*) FROM arrived") != total {
		t.Errorf("%d of %d events arrived", n, total)
	}
	wrong := one[int](t, b,
		"SELECT count(*) FROM (SELECT event_type < lag(event_type) OVER (PARTITION BY key ORDER BY n) AS early FROM "+
			"arrived) a WHERE early")
	if wrong != 0 {
		t.Errorf("%d events overtook one of their key", wrong)
	}
}

// As in TestWrite: with a pooler in between, pgx must be told to send statements in another way.
func TestEventBusInEveryMode(t *testing.T) {
	b := newBus(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		pool := newPool(t, b.url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		e := b.event("mode.mode", `it's \"`)
		ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return errors.Join(postgres.SetTenant(t.Context(), tx, b.app), b.Offer(t.Context(), tx, e))
		}))
		ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			taken := b.take(t, tx, 10)
			listed, err := b.ListPending(t.Context(), tx, uuid.Nil, 10)
			if len(taken) != 1 || len(listed) != 1 || taken[0].Key != e.Key || string(taken[0].Payload) != string(e.Payload) {
				t.Errorf("%v: took %v, listed %v", mode, taken, listed)
			}
			n, markErr := b.MarkPublished(t.Context(), tx, e.ID)
			if n != 1 {
				t.Errorf("%v: marked %d", mode, n)
			}
			return errors.Join(err, markErr)
		}))
	}
}

// Every statement is explained on the real database, so that an index that stops serving it fails
// the build.
func TestEventBusPlansUseTheirIndexes(t *testing.T) {
	b := newBus(t)
	_, err := b.Exec(t.Context(), `
		INSERT INTO event_outbox (app_id, event_id, event_type, payload, event_key, status)
		SELECT id, gen_random_uuid(), 'e.e', '{}', n % 50, CASE WHEN n % 20 = 0 THEN 'pending' ELSE 'published' END
		  FROM apps, generate_series(1, 15000) AS n WHERE id = $1`, b.app)
	ok(t, err)
	_, err = b.Exec(t.Context(), "ANALYZE event_outbox")
	ok(t, err)
	q := busevent.Query{IDs: []uuid.UUID{uuid.New(), uuid.New()}, EventID: uuid.New(), Limit: 10}
	for file, index := range map[string]string{
		"bus_take_pending":   "event_outbox_undelivered",
		"bus_list_pending":   "idx_event_outbox_pending",
		"bus_served":         "outbox_relays",
		"bus_count_pending":  "Index", // any of the pending rows' indexes will do
		"bus_by_event_id":    "event_outbox_event_id_key",
		"bus_mark_published": "Index Scan using",
		"bus_letter":         "Index Scan using",
		"bus_mark_failed":    "Index Scan using",
	} {
		text, args, err := cold.Statement(pgcold.DB{}, file, q)
		ok(t, err)
		rows, err := b.Query(t.Context(), "EXPLAIN (COSTS OFF) "+text, args...)
		ok(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		ok(t, err)
		plan := strings.Join(lines, "\n")
		if strings.Contains(plan, "Seq Scan on event_outbox") || !strings.Contains(plan, index) {
			t.Errorf("%s is not served by %s:\n%s", file, index, plan)
		}
	}
}
