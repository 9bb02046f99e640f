package pgoperate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// What an operator asks about a backlog must not read what was delivered: two million delivered rows would make it
// seconds.
func TestWaitingPlans(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, status, next_retry_at)
		SELECT 't', now(), 'Order', i % 1000, 's', '{}', CASE WHEN i <= 40000 THEN 'SENT' ELSE 'NEW' END, CASE WHEN i > 49990 THEN now() + interval '1 hour' END
		  FROM generate_series(1, 50000) i`)
	exec(t, pool, `ANALYZE outbox_events`)
	b := browser(t, pool, outbox.OutboxEvents())
	lanes, err := parseSQL()
	if err != nil {
		t.Fatal(err)
	}
	backlog, err := lanes.Statement("lanes_backlog", pgtable.Quote(outbox.OutboxEvents()))
	if err != nil {
		t.Fatal(err)
	}
	revive := ""
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		revive, err = b.replayStatement(t.Context(), tx, "replay_revive")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sql     string
		args    []any
		indexes []string
	}{
		// PostgreSQL 18 finds an aggregate's id without its type, by a skip scan.
		{b.sql.undelivered, []any{nil, nil, "7", nil},
			[]string{"outbox_events_undelivered|outbox_events_tenants|idx_outbox_aggregate"}},
		{b.sql.skip, []any{nil, nil, nil, "t", 10}, []string{"outbox_events_undelivered"}},
		{revive, []any{[]int64{1}, []uuid.UUID{uuid.New()}, time.Now(), nil}, []string{"outbox_events_pkey"}},
		{b.sql.behind, []any{[]int64{49001, 49002, 49003}},
			[]string{"outbox_events_waiting|idx_outbox_status", "outbox_events_undelivered"}},
		{backlog, []any{1000}, []string{"outbox_events_waiting|idx_outbox_status", "outbox_events_undelivered"}},
	} {
		plan := explainPlainly(t, pool, c.sql, c.args...)
		for _, names := range c.indexes {
			served := slices.ContainsFunc(strings.Split(names, "|"), func(n string) bool { return strings.Contains(plan, n) })
			if strings.Contains(plan, "Seq Scan on") || !served {
				t.Errorf("not served by %s:\n%s", names, plan)
			}
		}
	}
}
