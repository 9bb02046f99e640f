package integration

import (
	"database/sql"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/uuid"
	_ "github.com/lib/pq" // driver "postgres"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// The event bus through a driver that is not pgx: what it is given and what it returns are the
// driver's to convert.
func TestEventBusWithAnotherDriver(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url := testenv.Database(t)
	noError(t, migrations.Up(t.Context(), url, "core", "events"))
	db, err := sql.Open("postgres", url)
	noError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	app := uuid.New()
	if _, err := db.ExecContext(t.Context(), "INSERT INTO apps (id, name, namespace) VALUES ($1, 'Mine', 'mine')",
		app); err != nil {
		t.Fatal(err)
	}
	bus := postgres.NewSQLEventBus(0)
	tx, err := db.BeginTx(t.Context(), nil)
	noError(t, err)
	defer func() { _ = tx.Rollback() }()
	noError(t, postgres.SetTenant(t.Context(), tx, app))
	first := eventbus.Event{AppID: app, EventID: uuid.New(), EventType: "order.placed",
		Payload: json.RawMessage(`{"a": 1}`), Key: "42"}
	second := eventbus.Event{AppID: app, EventID: uuid.New(), EventType: "order.paid", Payload: json.RawMessage(`"ü"`)}
	for _, e := range []eventbus.Event{first, second} {
		noError(t, bus.Offer(t.Context(), tx, e))
	}
	if err := bus.Offer(t.Context(), tx, first); !errors.Is(err, outbox.ErrDuplicateEvent) {
		t.Errorf("offered again: %v", err)
	}
	taken, err := bus.TakePending(t.Context(), tx, 0)
	if err != nil || len(taken) != 2 || taken[0].Key != "42" || taken[0].EventID != first.EventID ||
		string(taken[1].Payload) != `"ü"` {
		t.Fatalf("took %+v, %v", taken, err)
	}
	if n, err := bus.MarkPublished(t.Context(), tx, taken[0].ID); err != nil || n != 1 {
		t.Errorf("published %d, %v", n, err)
	}
	if n, err := bus.Fail(t.Context(), tx, outbox.Failure{Error: "no"}, taken[1].ID); err != nil || n != 1 {
		t.Errorf("failed %d, %v", n, err)
	}
	found, err := bus.ByEventID(t.Context(), tx, first.EventID)
	if err != nil || found.Status != eventbus.Published || found.PublishedAt == nil {
		t.Errorf("found %+v, %v", found, err)
	}
	if n, err := bus.CountPending(t.Context(), tx); err != nil || n != 0 {
		t.Errorf("%d pending, %v", n, err)
	}
	noError(t, tx.Commit())
	if got := column(t, url,
		"SELECT concat_ws(' ', source, type, error_reason, attempts, error_history->-1->>'error') FROM "+
			"job_dlq"); len(got) != 1 || got[0] != "event order.paid DeliveryFailed 1 no" {
		t.Errorf("letters %q", got)
	}
}
