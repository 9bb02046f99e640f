package postgres

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

func TestLeaseLifecycle(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, first, lanes := serving(t, pool, OutboxEvents())
	second := uuid.New()
	lease := func(owner uuid.UUID, ttl time.Duration, want int) []outbox.Lane {
		t.Helper()
		got, err := s.Lease(t.Context(), owner, ttl)
		if err != nil || len(got) != want {
			t.Fatalf("got %d lanes, error %v, want %d", len(got), err, want)
		}
		return got
	}
	lease(second, time.Minute, 0) // held by the first
	if renewed := lease(first, time.Minute, outbox.Lanes); renewed[0] != lanes[0] {
		t.Errorf("a renewal changed the epoch: %v, before %v", renewed[0], lanes[0])
	}
	if err := s.Release(t.Context(), first, lanes[:10]); err != nil {
		t.Fatal(err)
	}
	taken := lease(second, time.Millisecond, 10)
	for i, l := range taken {
		if l.Number != lanes[i].Number || l.Epoch != lanes[i].Epoch+1 {
			t.Errorf("lane %+v, was %+v: the epoch must rise by one", l, lanes[i])
		}
	}
	// Releasing under an epoch that has passed does nothing.
	if err := s.Release(t.Context(), first, lanes[:10]); err != nil {
		t.Fatal(err)
	}
	if n := query[int](t, pool, "SELECT count(*) FROM outbox_lanes WHERE owner = $1", second); n != 10 {
		t.Errorf("second holds %d lanes, want 10", n)
	}
	exec(t, pool, "SELECT pg_sleep(0.01)")
	lease(first, time.Minute, outbox.Lanes) // the second's have lapsed
}

// Relays that start at the same moment share the lanes without a deadlock and without holding one twice.
func TestLeaseConcurrent(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, first, lanes := serving(t, pool, OutboxEvents())
	if err := s.Release(t.Context(), first, lanes); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	holder := map[int16]uuid.UUID{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			owner := uuid.New()
			for range 10 {
				got, err := s.Lease(t.Context(), owner, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, l := range got {
					if h, ok := holder[l.Number]; ok && h != owner {
						t.Errorf("lane %d is held by two", l.Number)
					}
					holder[l.Number] = owner
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(holder) != outbox.Lanes {
		t.Errorf("%d lanes are held, want %d", len(holder), outbox.Lanes)
	}
}

// Every statement of the relay is served by the index its header names, on a table where most rows are delivered.
func TestPlansUseTheirIndexes(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	writeOrders(t, pool, 2000, "a", "b", "c")
	exec(t, pool, "UPDATE outbox_events SET status = 'SENT' WHERE position <= 5000")
	run := query[uuid.UUID](t, pool, "INSERT INTO crawl_runs (app_package) VALUES ('com.example') RETURNING id")
	exec(t, pool, "INSERT INTO crawl_outbox (crawl_id, event_type, payload, published_at) SELECT $1, 'PROCESSING', '{}', CASE WHEN i <= 5000 THEN now() END FROM generate_series(1, 6000) i", run)
	app := query[uuid.UUID](t, pool, "SELECT id FROM apps WHERE namespace = 'default'")
	exec(t, pool, "INSERT INTO event_outbox (app_id, event_id, event_type, payload, status) SELECT $1, gen_random_uuid(), 'a.b', '{}', CASE WHEN i <= 5000 THEN 'published' ELSE 'pending' END FROM generate_series(1, 6000) i", app)
	exec(t, pool, "ANALYZE")
	for _, l := range []Layout{OutboxEvents(), EventOutbox(), CrawlOutbox()} {
		s, owner, lanes := serving(t, pool, l)
		numbers, epochs := splitLanes(lanes)
		records, err := s.Claim(t.Context(), lanes, everything)
		if err != nil {
			t.Fatal(err)
		}
		var positions []int64
		var ids []uuid.UUID
		for _, r := range records {
			positions, ids = append(positions, r.Position), append(ids, r.ID)
		}
		guard := []any{l.Table, owner, numbers, epochs}
		undelivered, waiting := l.Table+"_undelivered", l.Table+"_waiting"
		for _, tt := range []struct {
			name    string
			sql     string
			args    []any
			indexes []string
		}{
			{"claim", s.sql.claim, []any{numbers, 1000}, []string{undelivered, waiting}},
			{"settle_delivered", s.sql.settleDelivered, append(guard, positions, ids), []string{undelivered, "outbox_lanes_pkey"}},
			{"settle_retry", s.sql.settleRetry, append(guard, positions, ids, make([]int32, len(ids)), make([]int64, len(ids)), make([]string, len(ids)), make([]string, len(ids))), []string{undelivered}},
			{"settle_dead", s.sql.settleDead, append(guard, positions, ids, make([]int32, len(ids)), make([]string, len(ids)), make([]string, len(ids)), make([]string, len(ids)), "default"), []string{undelivered}},
			{"lease_take", s.sql.leaseTake, []any{l.Table, owner, 1000}, []string{"outbox_lanes_pkey"}},
			{"lease_release", s.sql.leaseRelease, guard, []string{"outbox_lanes_pkey"}},
			{"backlog", s.sql.backlog, []any{100}, []string{undelivered}},
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

func explain(t *testing.T, s *Store, sql string, args []any) string {
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

// Lanes whose rows were deleted under running relays come back: otherwise every relay would stand by for ever, and look healthy.
func TestLeaseMakesLostLanesAgain(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, _ := serving(t, pool, OutboxEvents())
	exec(t, pool, "DELETE FROM outbox_lanes WHERE lane % 2 = 0")
	for _, want := range []int{outbox.Lanes / 2, outbox.Lanes} {
		if lanes, err := s.Lease(t.Context(), owner, time.Minute); err != nil || len(lanes) != want {
			t.Fatalf("got %d lanes, error %v, want %d", len(lanes), err, want)
		}
	}
}
