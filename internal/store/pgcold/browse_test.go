package pgcold_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/test/operatetest"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func browser(t *testing.T, pool *pgxpool.Pool, layout outbox.Layout) *operate.Browser {
	t.Helper()
	b, err := operate.On(pgcold.DB{Pool: pool}).Browser(t.Context(), layout)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A reader sees no row of event_outbox before it names a tenant. An empty list would say that there
// are none.
func TestBrowseUnderRowLevelSecurity(t *testing.T) {
	pool := browsed(t)
	exec(t, pool, `INSERT INTO apps (name, namespace) VALUES ('Acme', 'acme'), ('Umbrella', 'umbrella')`)
	exec(t, pool, `INSERT INTO event_outbox (app_id, event_id, event_type, payload)
		SELECT id, outbox_uuidv7(), namespace || '.happened', '{}' FROM apps WHERE namespace <> 'default'`)
	exec(t, pool, `DO $$ BEGIN CREATE ROLE browse_reader LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	exec(t, pool, `GRANT SELECT ON event_outbox, apps TO browse_reader`)
	t.Cleanup(func() { // before the database goes, which the role's grants are part of
		if _, err := pool.Exec(context.Background(), `DROP OWNED BY browse_reader`); err != nil {
			t.Error(err)
		}
	})
	cfg := pool.Config()
	cfg.ConnConfig.User = "browse_reader"
	readers, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer readers.Close()

	b := browser(t, readers, outbox.EventOutbox())
	if _, _, err := b.List(t.Context(), operate.Filter{}); !errors.Is(err, outbox.ErrRowsHidden) {
		t.Errorf("no tenant: got %v, want outbox.ErrRowsHidden", err)
	}
	rows, _, err := b.List(t.Context(), operate.Filter{Tenant: "acme"})
	if err != nil || len(rows) != 1 || rows[0].Topic != "acme.happened" || *rows[0].Tenant != "acme" {
		t.Fatalf("tenant acme: got %+v, error %v, want its event alone", rows, err)
	}
	if _, err := b.Show(t.Context(), rows[0].ID.String(), "umbrella"); !errors.Is(err, operate.ErrNoEvent) {
		t.Errorf("another tenant's event: got %v, want operate.ErrNoEvent", err)
	}
	if rows, _, err := b.List(t.Context(), operate.Filter{Tenant: "nobody"}); err != nil || len(rows) != 0 {
		t.Errorf("unknown tenant: got %v, error %v, want nothing", rows, err)
	}
}

func TestBrowseKnown(t *testing.T) {
	pool := browsed(t)
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES ('t', now(), 's', '1')`)
	id := pgtest.Query[uuid.UUID](t, pool, `SELECT id FROM outbox_events`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		known, err := browser(
			t,
			pool,
			outbox.OutboxEvents(),
		).Known(t.Context(), pgcold.Conn{Querier: tx}, []uuid.UUID{uuid.New(), id})
		if err == nil && !slices.Equal(known, []uuid.UUID{id}) {
			t.Errorf("got %v, want %v", known, id)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A page must not cost more on a long table: an index gives the order, or holds the rare status.
// Which of several partial indexes on the same few rows is the planner's choice.
func TestBrowsePlans(t *testing.T) {
	tier.Full(t)
	pool := browsed(t)
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, status)
		SELECT 't', now(), 's', '{}', CASE WHEN i % 1000 = 0 THEN 'DEAD' ELSE 'SENT' END FROM generate_series(1, 20000) i`)
	exec(t, pool, `INSERT INTO crawl_runs (id, app_package) VALUES ('00000000-0000-0000-0000-000000000001', 'shop')`)
	exec(t, pool, `INSERT INTO crawl_outbox (crawl_id, event_type, payload, published_at)
		SELECT '00000000-0000-0000-0000-000000000001', 't', '{}', now() FROM generate_series(1, 20000) i`)
	exec(
		t,
		pool,
		`INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, payload, written_at, status)
		SELECT 'outbox_events', 'audit', 1, gen_random_uuid(), '["d"]', 't', '1', now(), CASE WHEN i % 1000 = 0 THEN 'pending' ELSE 'delivered' END
		  FROM generate_series(1, 20000) i`,
	)
	exec(t, pool, `ANALYZE outbox_events, crawl_outbox, outbox_deliveries`)
	for _, c := range []struct {
		layout   outbox.Layout
		statuses []string
		index    string
	}{
		{outbox.OutboxEvents(), nil, "outbox_events_pkey"},
		{outbox.OutboxEvents(), []string{"DEAD"},
			"idx_outbox_status|idx_outbox_tenant_status|idx_outbox_topic|idx_outbox_aggregate"},
		{outbox.OutboxEvents(), []string{"NEW", "FAILED"}, "outbox_events_undelivered"},
		{outbox.CrawlOutbox(), nil, "crawl_outbox_pkey"},
		{outbox.CrawlOutbox(), []string{"pending", "retry"}, "undelivered|unpublished"},
		{outbox.DeliveriesOf("outbox_events", "audit"), nil, "outbox_deliveries_pkey"},
		{outbox.DeliveriesOf("outbox_events", "audit"), []string{"pending"}, "outbox_deliveries_undelivered|_lanes"},
	} {
		plan := plans(t, pool, c.layout, func(b *operate.Browser) error {
			_, _, err := b.List(t.Context(), operate.Filter{Statuses: c.statuses})
			return err
		})[0]
		if strings.Contains(plan, "Seq Scan") ||
			!slices.ContainsFunc(strings.Split(c.index, "|"), func(i string) bool { return strings.Contains(plan, i) }) {
			t.Errorf("%s %v is not served by %s:\n%s", c.layout.Table, c.statuses, c.index, plan)
		}
	}
	event := pgtest.Query[uuid.UUID](t, pool, `SELECT event_id FROM outbox_deliveries LIMIT 1`)
	shown := plans(t, pool, outbox.OutboxEvents(), func(b *operate.Browser) error {
		_, err := b.Show(t.Context(), event.String(), "")
		return err
	})
	// The row is gone; so its delivery is shown, and then all of its deliveries.
	for _, plan := range shown[len(shown)-2:] {
		if !strings.Contains(plan, "outbox_deliveries_once") {
			t.Errorf("an event's deliveries are not served by outbox_deliveries_once:\n%s", plan)
		}
	}
}

// plans are those of the statements that ask runs.
func plans(t *testing.T, pool *pgxpool.Pool, layout outbox.Layout, ask func(*operate.Browser) error) []string {
	t.Helper()
	db, all := operatetest.Explained(pgcold.DB{Pool: pool}, "EXPLAIN")
	b, err := operate.On(db).Browser(t.Context(), layout)
	if err == nil {
		err = ask(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all()
}

// A reader of the events, who may not see what goes to sinks, is told so.
func TestShowSaysWhatIsHidden(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES ('t', now(), 's', '1')`)
	id := pgtest.Query[uuid.UUID](t, pool, `SELECT id FROM outbox_events`).String()
	reader := as(t, pool, "outbox_reader")
	if d, err := browser(t, reader, outbox.OutboxEvents()).Show(t.Context(), id, ""); err != nil || !d.DeliveriesHidden {
		t.Errorf("got %+v, error %v, want DeliveriesHidden", d, err)
	}
	exec(t, pool, `DROP TABLE outbox_deliveries`) // as in a schema without it
	if d, err := browser(t, reader, outbox.OutboxEvents()).Show(t.Context(), id, ""); err != nil || d.DeliveriesHidden {
		t.Errorf("got %+v, error %v, and nothing is hidden", d, err)
	}
}
