package pgcold_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// What an operator asks about a backlog must not read what was delivered: two million delivered
// rows would make it seconds.
func TestWaitingPlans(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, status, next_retry_at)
		SELECT 't', now(), 'Order', i % 1000, 's', '{}', CASE WHEN i <= 40000 THEN 'SENT' ELSE 'NEW' END, CASE WHEN i > 49990 THEN now() + interval '1 hour' END
		  FROM generate_series(1, 50000) i`)
	exec(t, pool, `ANALYZE outbox_events`)
	ctx, since := t.Context(), time.Now().Add(-time.Hour)
	waiting := pgtest.Query[uuid.UUID](t, pool, `SELECT id FROM outbox_events WHERE position = 50000`)
	for _, c := range []struct {
		ask     func(b *operate.Browser) error
		indexes []string
	}{
		// PostgreSQL 18 finds an aggregate's id without its type, by a skip scan.
		{func(b *operate.Browser) error {
			_, _, err := b.Undelivered(ctx, operate.Selection{Filter: operate.Filter{Key: "7"}})
			return err
		}, []string{"outbox_events_undelivered|outbox_events_tenants|idx_outbox_aggregate"}},
		{func(b *operate.Browser) error {
			_, err := b.ReplayPage(ctx, operate.Replay{Delivered: operate.Delivered{Since: since, Until: time.Now()}},
				[]operate.Place{{Position: 1, ID: waiting}})
			return err
		}, []string{"outbox_events_pkey"}},
		{func(b *operate.Browser) error {
			_, err := b.Show(ctx, waiting.String(), "")
			return err
		}, []string{"outbox_events_waiting|idx_outbox_status", "outbox_events_undelivered"}},
		{func(b *operate.Browser) error {
			_, err := b.Lanes(ctx, 1000)
			return err
		}, []string{"outbox_events_waiting|idx_outbox_status", "outbox_events_undelivered"}},
		{func(b *operate.Browser) error {
			_, err := b.SkipPage(ctx, operate.Selection{Filter: operate.Filter{Topic: "t"}},
				operate.Skip{Actor: "me", Reason: "r"}, 10)
			return err
		}, []string{"outbox_events_undelivered"}},
	} {
		plan := strings.Join(plans(t, pool, outbox.OutboxEvents(), c.ask), "\n")
		for _, names := range c.indexes {
			served := slices.ContainsFunc(strings.Split(names, "|"), func(n string) bool { return strings.Contains(plan, n) })
			if strings.Contains(plan, "Seq Scan on outbox_events") || !served {
				t.Errorf("not served by %s:\n%s", names, plan)
			}
		}
	}
}
