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
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// A backlog that came after the statistics were taken (or before there were any): the planner
// believes that it is empty. What it must not do is to compare every undelivered row with every
// settled one, which took 3 s.
func TestSettleWithoutStatistics(t *testing.T) {
	tier.Full(t)
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
