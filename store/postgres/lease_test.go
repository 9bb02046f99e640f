package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// owners returns n ids in ascending order, which is the order of their shares.
func owners(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// Where the server's clock was set back, a lease that was taken before would last for as long.
func TestLeaseAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, _ := serving(t, pool, outbox.OutboxEvents())
	exec(t, pool, "UPDATE outbox_lanes SET expires_at = expires_at + interval '1 hour'")
	exec(t, pool, "UPDATE outbox_relays SET expires_at = expires_at + interval '1 hour'")
	got, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Minute})
	if err != nil || len(got.Lanes) != outbox.LaneCount || got.Remaining > time.Minute {
		t.Fatalf("got %d lanes for %s, error %v, want all of them for a minute", len(got.Lanes), got.Remaining, err)
	}
	for _, table := range []string{"outbox_lanes", "outbox_relays"} {
		if n := query[int](t, pool, "SELECT count(*) FROM "+table+
			" WHERE expires_at > clock_timestamp() + interval '1 minute'"); n != 0 {
			t.Errorf("%d rows of %s still last longer than a lease", n, table)
		}
	}
}

// However many relays are alive, their shares are equal but for one lane and add up to all lanes.
func TestLeaseSharesAreFair(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s, _, _ := serving(t, migrated(t), outbox.CrawlOutbox())
	for n := 2; n <= 70; n++ {
		exec(t, s.pool.Pool, "TRUNCATE outbox_relays, outbox_lanes")
		relays := owners(n)
		exec(t, s.pool.Pool,
			"INSERT INTO outbox_relays (table_name, owner, name, expires_at) SELECT 'crawl_outbox', o, 'test', now() + "+
				"interval '1 minute' FROM unnest($1::uuid[]) o", relays)
		held := map[int16]bool{}
		for i, owner := range relays {
			if n > 8 && i%7 != 0 && i != n-1 {
				continue // the rest by the sum
			}
			got := lease(t, s, owner, time.Minute)
			want := outbox.LaneCount / n
			if i < outbox.LaneCount%n {
				want++
			}
			if len(got) != want {
				t.Errorf("relay %d of %d holds %d lanes, want %d", i, n, len(got), want)
			}
			for _, l := range got {
				if held[l.Number] {
					t.Errorf("lane %d is held twice", l.Number)
				}
				held[l.Number] = true
			}
		}
		if n <= 8 && len(held) != outbox.LaneCount {
			t.Errorf("%d relays hold %d lanes", n, len(held))
		}
	}
}

// A relay that is well asks twice a second. Nothing is written for it until a third of its time is
// gone, and then one row. Its lanes are its own for as long as that row says; once it is leaving,
// for as long as theirs say.
func TestLeaseWritesOnlyWhatIsDue(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, _ := serving(t, pool, outbox.OutboxEvents())
	const (
		relay = "SELECT xmin::text FROM outbox_relays"
		lanes = "SELECT string_agg(xmin::text, ',' ORDER BY lane) FROM outbox_lanes"
	)
	wroteRelay, wroteLanes := query[string](t, pool, relay), query[string](t, pool, lanes)
	lease(t, s, owner, time.Minute)
	if query[string](t, pool, relay) != wroteRelay || query[string](t, pool, lanes) != wroteLanes {
		t.Error("a request with nothing due wrote")
	}
	exec(t, pool, "UPDATE outbox_lanes SET expires_at = clock_timestamp() - interval '1 second'")
	exec(t, pool, "UPDATE outbox_relays SET expires_at = expires_at - interval '25 seconds'")
	wroteRelay, wroteLanes = query[string](t, pool, relay), query[string](t, pool, lanes)
	got, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Minute})
	if err != nil || len(got.Lanes) != outbox.LaneCount || got.Remaining < 50*time.Second {
		t.Errorf("renewed: %d lanes for %s, error %v; want all of them for a minute", len(got.Lanes), got.Remaining, err)
	}
	if query[string](t, pool, relay) == wroteRelay || query[string](t, pool, lanes) != wroteLanes {
		t.Error("a renewal wrote something else than the relay's row")
	}
	other := uuid.New()
	if taken := lease(t, s, other, time.Minute); len(taken) > 0 {
		t.Errorf("another relay took %d lanes of one that is alive", len(taken))
	}
	got, err = s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Minute, Leaving: true})
	if err != nil || len(got.Lanes) != outbox.LaneCount || got.Remaining < 50*time.Second {
		t.Errorf("leaving: %d lanes for %s, error %v; want all of them for a minute", len(got.Lanes), got.Remaining, err)
	}
	if taken := lease(t, s, other, time.Minute); len(taken) > 0 {
		t.Errorf("another relay took %d lanes of one that is leaving and has not given them up", len(taken))
	}
}

func inMode(l outbox.Layout, mode outbox.SettleMode) outbox.Layout {
	l.Settle = mode
	return l
}

// Every statement of the relay is served by the index its header names, on a table where most rows
// are delivered.
func TestPlansUseTheirIndexes(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := migrated(t)
	writeOrders(t, pool, 2000, "a", "b", "c")
	exec(t, pool, "UPDATE outbox_events SET status = 'SENT' WHERE position <= 5000")
	run := query[uuid.UUID](t, pool, "INSERT INTO crawl_runs (app_package) VALUES ('com.example') RETURNING id")
	exec(t, pool,
		"INSERT INTO crawl_outbox (crawl_id, event_type, payload, published_at) SELECT $1, 'PROCESSING', '{}', CASE WHEN i "+
			"<= 5000 THEN now() END FROM generate_series(1, 6000) i", run)
	app := query[uuid.UUID](t, pool, "SELECT id FROM apps WHERE namespace = 'default'")
	exec(t, pool,
		"INSERT INTO event_outbox (app_id, event_id, event_type, payload, status) SELECT $1, gen_random_uuid(), 'a.b', "+
			"'{}', CASE WHEN i <= 5000 THEN 'published' ELSE 'pending' END FROM generate_series(1, 6000) i", app)
	exec(t, pool, "ANALYZE")
	for _, l := range []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox(), outbox.CrawlOutbox()} {
		s, owner, lanes := serving(t, pool, l)
		deleting, err := statementsOf(inMode(l, outbox.SettleDelete))
		if err != nil {
			t.Fatal(err)
		}
		archiving, err := statementsOf(inMode(l, outbox.SettleArchive))
		if err != nil {
			t.Fatal(err)
		}
		numbers, epochs := pgtable.SplitLanes(lanes)
		records, err := s.Claim(t.Context(), lanes, everything)
		if err != nil {
			t.Fatal(err)
		}
		watching, _, err := s.Watch(1)
		if err != nil {
			t.Fatal(err)
		}
		var positions []int64
		var ids []uuid.UUID
		var places pgtable.Rows
		for _, r := range records {
			positions, ids = append(positions, r.Position), append(ids, r.ID)
			places.Add(&outbox.Outcome{Record: r})
		}
		generations := make([]int32, len(ids))
		guard := []any{l.Table, owner, numbers, epochs}
		undelivered, waiting := l.Table+"_undelivered", l.Table+"_waiting"
		for _, tt := range []struct {
			name    string
			sql     string
			args    []any
			indexes []string
		}{
			{"claim", s.sql.claim, []any{pgtable.LaneBits(lanes), 1000, []int64{}, []uuid.UUID{}},
				[]string{undelivered, waiting}},
			{"claim, pausing", s.sql.claimPausing.claim,
				[]any{pgtable.LaneBits(lanes), 1000, []int64{}, []uuid.UUID{}, []string{"none%"}, []string{"none"}, "{topic}"},
				[]string{undelivered, waiting}},
			{"settle_delivered", s.sql.settle.delivered, append(guard, positions, ids, generations),
				[]string{undelivered, "outbox_lanes_pkey"}},
			{"settle_retry", s.sql.settle.retry,
				append(guard, positions, ids, generations, make([]int32, len(ids)), make([]int64, len(ids)),
					make([]string, len(ids)), make([]string, len(ids))), []string{undelivered}},
			{"settle_dead", s.sql.settle.dead,
				append(guard, positions, ids, generations, make([]int32, len(ids)), make([]string, len(ids)),
					make([]string, len(ids)), make([]string, len(ids)), "default", l.Table), []string{undelivered}},
			{"settle_left", s.sql.settleLeft, append(guard, positions, ids, generations),
				[]string{undelivered, "outbox_lanes_pkey"}},
			{"settle_delivered, by place", s.sql.settlePlaced.delivered,
				append(guard, positions, ids, generations, places.Places), []string{"Tid Scan", "outbox_lanes_pkey"}},
			{"settle_delete, by place", deleting.settlePlaced.remove,
				append(guard, positions, ids, generations, places.Places), []string{"Tid Scan", "outbox_lanes_pkey"}},
			{"settle_delete", deleting.settle.remove, append(guard, positions, ids, generations),
				[]string{undelivered, "outbox_lanes_pkey"}},
			{"settle_delete, passing", deleting.settlePassing.remove, append(guard, positions, ids, generations),
				[]string{undelivered, "outbox_lanes_pkey"}},
			{"settle_delete, archiving", archiving.settle.remove, append(guard, positions, ids, generations),
				[]string{undelivered, "outbox_lanes_pkey"}},
			{"settle_known", deleting.settleKnown, append(guard, positions, ids, make([]int16, len(ids))),
				[]string{undelivered, "outbox_lanes_pkey"}},
			{"settle_delivered, passing", s.sql.settlePassing.delivered, append(guard, positions, ids, generations),
				[]string{undelivered, "outbox_lanes_pkey"}},
			{"lease_join", s.sql.leaseJoin, []any{l.Table, owner, "test", 1000, nil, nil, nil},
				[]string{"outbox_relays_pkey"}},
			{"lease_take", s.sql.leaseTake, []any{l.Table, owner, 1000, outbox.LaneCount, false, false},
				[]string{"outbox_lanes_pkey", "outbox_relays_pkey"}},
			{"lease_held", s.sql.leaseHeld, []any{l.Table, owner, outbox.LaneCount, l.Table},
				[]string{"outbox_lanes_pkey", "outbox_relays_pkey"}},
			{"lease_leave", s.sql.leaseLeave, []any{l.Table, owner}, []string{"outbox_lanes_pkey"}},
			{"lease_release", s.sql.leaseRelease, guard, []string{"outbox_lanes_pkey"}},
			{"backlog", s.sql.backlog, []any{100}, []string{undelivered}},
			{"watch", watching, []any{[]string{l.Table}, []string{l.Table}, []bool{false}},
				[]string{undelivered, "outbox_lanes_pkey", "outbox_relays_pkey"}},
		} {
			plan := explain(t, s, tt.sql, tt.args)
			for _, index := range tt.indexes {
				if !strings.Contains(plan, index) {
					t.Errorf("%s of %s does not use %s:\n%s", tt.name, l.Table, index, plan)
				}
			}
			if strings.Contains(plan, "Seq Scan on "+l.Table) {
				t.Errorf("%s of %s reads the whole table:\n%s", tt.name, l.Table, plan)
			}
		}
	}
}

func explain(t *testing.T, s *store, sql string, args []any) string {
	t.Helper()
	rows, err := s.pool.Query(t.Context(), "EXPLAIN "+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plan, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("explain: %v", err)
	}
	return plan.String()
}

// Lanes whose rows were deleted under running relays come back: otherwise every relay would stand
// by for ever, and look healthy.
func TestLeaseMakesLostLanesAgain(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, _ := serving(t, pool, outbox.OutboxEvents())
	exec(t, pool, "DELETE FROM outbox_lanes WHERE lane % 2 = 0")
	if lanes := lease(t, s, owner, time.Minute); len(lanes) != outbox.LaneCount {
		t.Fatalf("got %d lanes, want %d", len(lanes), outbox.LaneCount)
	}
}

// An index of the application on a table of leases is no second reader.
func TestLeaseReportsADuplicateThatIsNoReader(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	if _, err := pool.Exec(t.Context(), "CREATE UNIQUE INDEX one_name ON outbox_relays (name)"); err != nil {
		t.Fatal(err)
	}
	s, err := openTable(t.Context(), pool, outbox.OutboxEvents())
	if err != nil {
		t.Fatal(err)
	}
	lease(t, s, uuid.New(), time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = s.Lease(ctx, outbox.LeaseRequest{Owner: uuid.New(), Name: "test", TTL: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "one_name") {
		t.Errorf("got the error %v, want that of the index", err)
	}
}
