package postgres

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
)

func TestZZPlan(t *testing.T) {
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, OutboxEvents())
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_id, source_bc, payload)
		SELECT 'e', now(), (i % 50)::text, 's', to_jsonb(i) FROM generate_series(1, 20000) i`)
	numbers, epochs := splitLanes(lanes)
	for _, n := range []int{100, 1000} {
		records, err := s.Claim(t.Context(), lanes, outbox.ClaimLimit{Records: n, Bytes: 8 << 20})
		if err != nil { t.Fatal(err) }
		var d delivered
		for _, r := range records { d.add(&outbox.Outcome{Record: r}) }
		rows, err := pool.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+s.sql.settleDelivered, "outbox_events", owner, numbers, epochs, d.positions, d.ids)
		if err != nil { t.Fatal(err) }
		var o []string
		for rows.Next() { var l string; _ = rows.Scan(&l); o = append(o, l) }
		t.Log(strings.Join(o, "\n"), rows.Err())
	}
}
