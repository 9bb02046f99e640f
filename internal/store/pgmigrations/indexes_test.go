package pgmigrations_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// ADR-004's indexes are there as it writes them, can be made lean and back while somebody writes,
// and serve its queries on delivered rows.
func TestSwitchIndexes(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url, conn := database(t)
	run(t, conn, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, status)
		SELECT 'topic.' || n % 1000, now(), 'Order', n::text, 'shop', '{}', 'SENT' FROM generate_series(1, 20000) AS n`)
	run(t, conn, "ANALYZE outbox_events")

	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	written, slowest := 0, time.Duration(0)
	writer := connect(t, url)
	writing.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if _, err := writer.Exec(t.Context(),
				`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES ('t', now(), 'shop', '{}')`); err != nil {
				t.Error(err)
				return
			}
			written++
			slowest = max(slowest, time.Since(began))
			time.Sleep(time.Millisecond)
		}
	})
	for _, set := range []pgmigrations.IndexSet{pgmigrations.LeanIndexes, pgmigrations.ADRIndexes} {
		number := map[pgmigrations.IndexSet]int{pgmigrations.ADRIndexes: 5, pgmigrations.LeanIndexes: 1}[set]
		changed, err := pgmigrations.SwitchIndexes(t.Context(), url, set, func(string) {})
		if err != nil || len(changed) != 5 {
			t.Fatalf("%s: changed %v, error %v", set, changed, err)
		}
		if changed, err = pgmigrations.SwitchIndexes(t.Context(), url, set, func(string) {}); err != nil ||
			len(changed) != 0 {
			t.Errorf("%s again: changed %v, error %v", set, changed, err)
		}
		if indexes := indexesOf(t, url, set); len(indexes) != number {
			t.Errorf("%s: the database has %+v", set, indexes)
		}
	}
	byTenant := indexesOf(t, url, pgmigrations.TenantIndex)
	for n, set := range []pgmigrations.IndexSet{
		pgmigrations.TenantIndex, pgmigrations.OneTenant, pgmigrations.OneTenant, pgmigrations.TenantIndex,
	} {
		changed, err := pgmigrations.SwitchIndexes(t.Context(), url, set, func(string) {})
		if want := []int{0, 1, 0, 1}[n]; err != nil || len(changed) != want {
			t.Errorf("%s: changed %v, error %v, want %d", set, changed, err, want)
		}
		if has := indexesOf(t, url, pgmigrations.TenantIndex); (len(has) == 1) != (set == pgmigrations.TenantIndex) {
			t.Errorf("%s: the database has %+v", set, has)
		}
	}
	if again := indexesOf(t, url, pgmigrations.TenantIndex); !slices.Equal(again, byTenant) || len(byTenant) != 1 {
		t.Errorf("the migration made %+v, the switch %+v", byTenant, again)
	}
	if five := indexesOf(t, url, pgmigrations.ADRIndexes); len(five) != 5 {
		t.Errorf("of ADR-004's indexes are left %+v", five)
	}
	stop()
	writing.Wait()
	if written == 0 {
		t.Error("nothing was written meanwhile")
	}
	t.Logf("%d rows were written meanwhile, the slowest took %s", written, slowest)

	run(t, conn, "ANALYZE outbox_events")
	for index, where := range map[string]string{
		"idx_outbox_aggregate":     "aggregate_type = 'Order' AND aggregate_id = '42'",
		"idx_outbox_topic":         "event_topic = 'topic.42'",
		"idx_outbox_tenant_status": "tenant_id = 'acme' AND status = 'SENT'",
		"idx_outbox_created":       "created_at > now() + interval '1 hour'",
		"idx_outbox_status":        "status = 'FAILED' AND next_retry_at < now()",
	} {
		plan := strings.Join(query[string](t, conn, "EXPLAIN SELECT * FROM outbox_events WHERE "+where), "\n")
		// What has failed the relay's own index has too, and of a few rows the planner takes
		// either.
		also := index == "idx_outbox_status" && strings.Contains(plan, "outbox_events_waiting")
		if !strings.Contains(plan, index) && !also {
			t.Errorf("%s does not serve %s:\n%s", index, where, plan)
		}
	}
}

// indexesOf are the indexes that have a form.
func indexesOf(t *testing.T, url string, set pgmigrations.IndexSet) []pgmigrations.Index {
	t.Helper()
	indexes, err := pgmigrations.Indexes(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(indexes, func(x pgmigrations.Index) bool { return x.Set != set })
}

// The one index of the lean form serves ADR-004's queries on what failed.
func TestLeanIndexServesFailedRows(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url, conn := database(t)
	run(t, conn, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, status, next_retry_at)
		SELECT 'topic.' || n % 1000, now(), 'Order', n::text, 'shop', '{}', CASE n % 100 WHEN 0 THEN 'DEAD' WHEN 1 THEN 'FAILED' ELSE 'SENT' END,
			CASE n % 100 WHEN 1 THEN now() END FROM generate_series(1, 20000) AS n`)
	changed, err := pgmigrations.SwitchIndexes(t.Context(), url, pgmigrations.LeanIndexes, func(string) {})
	if err != nil || len(changed) != 5 {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	left := query[string](t, conn, "SELECT relname::text FROM pg_class WHERE relname LIKE 'idx_outbox_%'")
	if !slices.Equal(left, []string{"idx_outbox_status"}) {
		t.Errorf("left are %v", left)
	}
	run(t, conn, "ANALYZE outbox_events")
	for _, where := range []string{
		"status = 'FAILED' AND next_retry_at < now()",
		"status = 'DEAD'",
		"status = 'DEAD' AND tenant_id = 'acme'",
		"status IN ('FAILED', 'DEAD') AND aggregate_type = 'Order' AND aggregate_id = '42'",
		"status IN ('FAILED', 'DEAD') AND event_topic = 'topic.42'",
	} {
		if plan := strings.Join(query[string](t, conn, "EXPLAIN SELECT * FROM outbox_events WHERE "+where),
			"\n"); !strings.Contains(plan, "idx_outbox_status") {
			t.Errorf("idx_outbox_status does not serve %s:\n%s", where, plan)
		}
	}
}

// What a killed process left behind is put right: an index under the wrong name, one that is
// missing.
func TestSwitchIndexesAfterAKill(t *testing.T) {
	t.Parallel()
	url, conn := database(t)
	run(t, conn, "CREATE INDEX idx_outbox_topic_new ON outbox_events (event_topic); DROP INDEX idx_outbox_created")
	for n, set := range []pgmigrations.IndexSet{pgmigrations.ADRIndexes, pgmigrations.LeanIndexes} {
		changed, err := pgmigrations.SwitchIndexes(t.Context(), url, set, func(string) {})
		if err != nil || len(changed) != []int{1, 5}[n] {
			t.Errorf("%s: changed %v, error %v", set, changed, err)
		}
	}
	if left := query[string](t, conn,
		"SELECT relname::text FROM pg_class WHERE relname LIKE 'idx_outbox_%_new'"); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
	if _, err := pgmigrations.SwitchIndexes(t.Context(), url, "fast", func(string) {}); err == nil ||
		!strings.Contains(fmt.Sprint(err), "one-tenant") {
		t.Errorf("a set of another name: %v", err)
	}
}
