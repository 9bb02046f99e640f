package logtable_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/internal/logtable"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// newLog returns a pool on a new database with a log.
func newLog(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Prepared(t, "core_log", func(ctx context.Context, url string) error {
		return migrations.Up(ctx, url, "core", "log")
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// openLog opens the log as a relay that owns all lanes.
func openLog(t *testing.T, pool *pgxpool.Pool) (s *logtable.Store, owner uuid.UUID, lanes []outbox.Lane) {
	t.Helper()
	opened, err := postgres.NewDB(pool).OpenTable(t.Context(), outbox.OutboxLog())
	if err != nil {
		t.Fatal(err)
	}
	s, owner = opened.(*logtable.Store), uuid.New()
	leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s, owner, leased.Lanes
}

// deliver claims one batch and settles its records as delivered.
func deliver(t *testing.T, s *logtable.Store, owner uuid.UUID, lanes []outbox.Lane) []*outbox.Record {
	t.Helper()
	records, err := s.Claim(t.Context(), lanes, outbox.ClaimLimit{Records: 500, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := make([]outbox.Outcome, len(records))
	for i, r := range records {
		outcomes[i].Record = r
	}
	done, err := s.Settle(t.Context(), owner, lanes, outcomes)
	if err != nil || done.Delivered != len(records) {
		t.Fatalf("settled %+v of %d, error %v", done, len(records), err)
	}
	return records
}

// Every statement of a log is served by the indexes that its header names. The plans are those of
// statistics from before most rows, and from after.
func TestPlansOfALogUseTheirIndexes(t *testing.T) {
	t.Parallel()
	pool := newLog(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	insert := "INSERT INTO outbox_log (event_topic, occurred_at, aggregate_id, source_bc, payload) " +
		"SELECT 'a.b', now(), (i % 50)::text, 'test', '{}' FROM generate_series(1, $1::int) i"
	exec(insert, 3000)
	exec("ANALYZE")
	s, owner, lanes := openLog(t, pool)
	for settled := 0; settled < 3000; {
		settled += len(deliver(t, s, owner, lanes))
	}
	numbers, epochs := pgtable.SplitLanes(lanes)
	name, sql := s.LeaseName(), s.SQL()
	guard := []any{name, owner, numbers, epochs}
	watching, _, err := s.Watch(1)
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
			{"claim", sql["claim"], []any{pgtable.LaneBits(lanes), 1000, 3000, 1 << 40, []string{"7"}, "900", -1, nil},
				[]string{positions, transactions}},
			{"claim, in a pass", sql["claim"],
				[]any{pgtable.LaneBits(lanes), 1000, 3000, 1 << 40, []string{"7"}, "900", 5, "8:8:"},
				[]string{positions, transactions}},
			{"load", sql["load"], []any{name, numbers}, []string{places, "outbox_log_era_pkey"}},
			{"settle", sql["settle"], append(guard, -1, 5, "8:8:", nil, nil, s.Era()),
				[]string{"outbox_lanes_pkey", "outbox_log_era_pkey"}},
			{"note", sql["note"], []any{name, -1, 5, "8:8:", nil, nil, s.Era()}, []string{"outbox_log_era_pkey"}},
			{"dead", sql["dead"], append(guard, []int64{5}, []uuid.UUID{owner}, []int32{0}, []int32{1}, []string{"e"},
				[]string{"r"}, []string{"d"}, "default", name, []int16{1}), []string{positions, "outbox_lanes_pkey"}},
			{"compact", sql["compact"], []any{name, outbox.LaneCount}, []string{places}},
			{"backlog", sql["backlog"], []any{name, 100, outbox.LaneCount}, []string{positions, places}},
			{"watch", watching, []any{[]string{name}, []string{name}, []bool{false}},
				[]string{positions, transactions, places}},
		} {
			rows, err := s.Pool.Query(t.Context(), "EXPLAIN "+tt.sql, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
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
		exec(insert, 30_000)
		exec("ANALYZE")
	}
}
