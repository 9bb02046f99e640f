package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// Every statement of a log is served by the indexes that its header names. The plans are those of statistics from
// before most rows, and from after.
func TestPlansOfALogUseTheirIndexes(t *testing.T) {
	t.Parallel()
	pool := connected(t, testenv.Prepared(t, "core_log", func(ctx context.Context, url string) error {
		return migrations.Up(ctx, url, "core", "log")
	}))
	insert := "INSERT INTO outbox_log (event_topic, occurred_at, aggregate_id, source_bc, payload) " +
		"SELECT 'a.b', now(), (i % 50)::text, 'test', '{}' FROM generate_series(1, $1::int) i"
	exec(t, pool, insert, 3000)
	exec(t, pool, "ANALYZE")
	opened, err := NewDB(pool).OpenTable(t.Context(), outbox.OutboxLog())
	if err != nil {
		t.Fatal(err)
	}
	s := opened.(*logStore)
	owner := uuid.New()
	leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for settled := 0; settled < 3000; {
		records, err := s.Claim(t.Context(), leased.Lanes, outbox.ClaimLimit{Records: 500, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		outcomes := make([]outbox.Outcome, len(records))
		for i, r := range records {
			outcomes[i].Record = r
		}
		done, err := s.Settle(t.Context(), owner, leased.Lanes, outcomes)
		if err != nil || done.Delivered != len(records) {
			t.Fatalf("settled %+v of %d, error %v", done, len(records), err)
		}
		settled += len(records)
	}
	numbers, epochs := splitLanes(leased.Lanes)
	guard := []any{s.name, owner, numbers, epochs}
	watching, err := watchSQL(s.layout, 1)
	if err != nil {
		t.Fatal(err)
	}
	const positions, transactions, places = "_position_idx", "_xid_expr_idx", "outbox_log_positions_pkey"
	for range 2 {
		for _, tt := range []struct {
			name    string
			sql     string
			args    []any
			indexes []string
		}{
			{"claim", s.sql.claim, []any{laneBits(leased.Lanes), 1000, 3000, 1 << 40, []string{"7"}, "900", -1, nil},
				[]string{positions, transactions}},
			{"claim, in a pass", s.sql.claim,
				[]any{laneBits(leased.Lanes), 1000, 3000, 1 << 40, []string{"7"}, "900", 5, "8:8:"},
				[]string{positions, transactions}},
			{"load", s.sql.load, []any{s.name, numbers}, []string{places, "outbox_log_era_pkey"}},
			{"settle", s.sql.settle, append(guard, -1, 5, "8:8:", nil, nil, s.era),
				[]string{"outbox_lanes_pkey", "outbox_log_era_pkey"}},
			{"note", s.sql.note, []any{s.name, -1, 5, "8:8:", nil, nil, s.era}, []string{"outbox_log_era_pkey"}},
			{"dead", s.sql.dead, append(guard, []int64{5}, []uuid.UUID{owner}, []int32{0}, []int32{1}, []string{"e"},
				[]string{"r"}, []string{"d"}, "default", s.name, []int16{1}), []string{positions, "outbox_lanes_pkey"}},
			{"compact", s.sql.compact, []any{s.name, outbox.Lanes}, []string{places}},
			{"backlog", s.sql.backlog, []any{s.name, 100, outbox.Lanes}, []string{positions, places}},
			{"watch", watching, []any{[]string{s.name}, []string{s.name}, []bool{false}},
				[]string{positions, transactions, places}},
		} {
			plan := explain(t, s.store, tt.sql, tt.args)
			for _, index := range tt.indexes {
				if !strings.Contains(plan, index) {
					t.Errorf("%s does not use %s:\n%s", tt.name, index, plan)
				}
			}
			if strings.Contains(plan, "Seq Scan on outbox_log") {
				t.Errorf("%s reads a whole part:\n%s", tt.name, plan)
			}
			if late, _, _ := strings.Cut(plan, "CTE"); strings.Contains(late, "Filter: ((\"position\" + 0) <=") {
				t.Errorf("%s reads rows to find those that are late:\n%s", tt.name, plan)
			}
		}
		exec(t, pool, insert, 30_000)
		exec(t, pool, "ANALYZE")
	}
}
