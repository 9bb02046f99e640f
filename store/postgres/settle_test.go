package postgres

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// What a dead record becomes: outbox_events and event_outbox mark it, crawl_outbox lets it go (its
// log keeps it), and each has a dead letter of the same transaction (docs/seeds.md#05-01).
func TestSettleDeadWritesLetters(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	app := query[uuid.UUID](t, pool, "INSERT INTO apps (name, namespace) VALUES ('Acme', 'acme') RETURNING id")
	run := query[uuid.UUID](t, pool, "INSERT INTO crawl_runs (app_package) VALUES ('com.example') RETURNING id")
	exec(t, pool,
		`INSERT INTO outbox_events (event_topic, occurred_at, tenant_id, aggregate_id, source_bc, payload) VALUES ('a.b', now(), 'never-registered', '42', 'shop', '{"n": 1}')`)
	exec(t, pool,
		`INSERT INTO event_outbox (app_id, event_id, event_type, payload) VALUES ($1, gen_random_uuid(), 'c.d', '{"n": 1}')`,
		app)
	exec(t, pool, `INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 'ERROR', '{"n": 1}')`, run)
	for _, tt := range []struct {
		layout    outbox.Layout
		stateSQL  string
		want      string
		namespace string
	}{
		{outbox.OutboxEvents(), "SELECT status || ' ' || retry_count FROM outbox_events", "DEAD 3", "never-registered"},
		{outbox.EventOutbox(), "SELECT status || ' ' || retry_count FROM event_outbox", "failed 3", "acme"},
		{outbox.CrawlOutbox(), "SELECT count(*)::text FROM crawl_outbox", "0", "default"},
	} {
		s, owner, lanes := serving(t, pool, tt.layout)
		records, err := s.Claim(t.Context(), lanes, everything)
		if err != nil || len(records) != 1 {
			t.Fatalf("%s: claimed %d, error %v", tt.layout.Table, len(records), err)
		}
		if _, err := s.Settle(t.Context(), owner, lanes,
			[]outbox.Outcome{{Record: records[0], State: outbox.Retry, Attempts: 1,
				Failures: []outbox.Failure{{Error: "first"}}}}); err != nil {
			t.Fatal(err)
		}
		got, err := s.Settle(t.Context(), owner, lanes,
			[]outbox.Outcome{{Record: records[0], State: outbox.Dead, Attempts: 3, Failures: []outbox.Failure{
				{Destination: "x", Reason: outbox.ReasonDeliveryFailed, Error: "last"},
				{Destination: "y", Reason: outbox.ReasonHandlerMissing, Error: "other"},
			}}})
		if err != nil || got != (outbox.Settled{Dead: 1}) {
			t.Fatalf("%s: settled %+v, error %v", tt.layout.Table, got, err)
		}
		if state := query[string](t, pool, tt.stateSQL); state != tt.want {
			t.Errorf("%s: got state %q, want %q", tt.layout.Table, state, tt.want)
		}
		var letters, attempts, entries int
		var namespace string
		if err := pool.QueryRow(t.Context(), `SELECT count(*), min(attempts), min(jsonb_array_length(error_history)), min(a.namespace)
			FROM job_dlq d JOIN apps a ON a.id = d.app_id
			WHERE source = 'event' AND outbox_table = $1 AND original_job_id = $2 AND payload = '{"n": 1}' AND replayed_at IS NULL`,
			tt.layout.Table, records[0].ID).Scan(&letters, &attempts, &entries, &namespace); err != nil {
			t.Fatal(err)
		}
		if letters != 2 || attempts != 3 || entries != 2 || namespace != tt.namespace {
			t.Errorf("%s: %d letters, %d attempts, %d history entries, app %s", tt.layout.Table, letters, attempts, entries,
				namespace)
		}
		if left, err := s.Claim(t.Context(), lanes, everything); err != nil || len(left) != 0 {
			t.Errorf("%s: a dead record was claimed again (error %v)", tt.layout.Table, err)
		}
	}
}

// After a failover to a lagging standby, new rows take positions that were claimed before: such a
// row must not be settled unpublished.
func TestSettleComparesIDsNotOnlyPositions(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
	writeOrders(t, pool, 1, "a")
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "UPDATE outbox_events SET id = gen_random_uuid()") // the row that stands there now
	if got, err := s.Settle(t.Context(), owner, lanes,
		[]outbox.Outcome{{Record: records[0], State: outbox.Delivered}}); err != nil || got.Lost != 1 {
		t.Errorf("settled %+v, error %v, want it lost", got, err)
	}
}

// A backlog that came after the statistics were taken (or before there were any): the planner
// believes that it is empty. What it must not do is to compare every undelivered row with every
// settled one, which took 3 s.
func TestSettleWithoutStatistics(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
	deleting, err := statementsOf(inMode(outbox.OutboxEvents(), outbox.SettleDelete))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "ANALYZE outbox_events")
	writeOrders(t, pool, 2000, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 1000 {
		t.Fatalf("claimed %d records, error %v", len(records), err)
	}
	var of [3][]outbox.Outcome
	for i, r := range slices.Backward(records) { // the order in which they come must not matter
		state := outbox.State(i % 3)
		of[state] = append(of[state], outbox.Outcome{Record: r, State: state, Attempts: 1, RetryIn: time.Hour,
			Failures: []outbox.Failure{{Error: "boom", Reason: outbox.ReasonDeliveryFailed}}})
	}
	for state, outcomes := range of {
		began := time.Now()
		settled, err := s.Settle(t.Context(), owner, lanes, outcomes)
		if err != nil || settled.Lost != 0 {
			t.Fatalf("state %d: settled %+v, error %v", state, settled, err)
		}
		t.Logf("state %d: %d records in %s", state, len(outcomes), time.Since(began))
	}
	numbers, epochs := pgtable.SplitLanes(lanes)
	for _, sql := range []string{s.sql.settlePlaced.delivered, deleting.settlePlaced.remove} {
		plan := explain(t, s, sql, []any{s.layout.Table, owner, numbers, epochs, []int64{1}, []uuid.UUID{uuid.Nil},
			[]int32{0}, []pgtype.TID{{BlockNumber: 1, OffsetNumber: 1, Valid: true}}})
		if !strings.Contains(plan, "Tid Scan on outbox_events") {
			t.Errorf("the rows are not found by place:\n%s", plan)
		}
	}
	for _, sql := range []string{s.sql.settle.delivered, deleting.settle.remove, s.sql.settle.retry, s.sql.settle.dead} {
		none := []string{}
		args := []any{s.layout.Table, owner, numbers, epochs, []int64{1, 2}, []uuid.UUID{uuid.Nil, uuid.Nil}, []int32{0, 0},
			[]int32{}, []int64{}, none, none, eventrow.DefaultTenant, s.layout.Table}
		switch sql {
		case s.sql.settle.delivered, deleting.settle.remove:
			args = args[:7]
		case s.sql.settle.retry:
			args = args[:11]
		default:
			args[8] = none
		}
		if plan := explain(t, s, sql, args); !strings.Contains(plan, "using outbox_events_undelivered") ||
			!strings.Contains(plan, "Tid Scan") {
			t.Errorf("the rows are not found by position:\n%s", plan)
		}
	}
}
