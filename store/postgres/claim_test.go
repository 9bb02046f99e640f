package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

var everything = outbox.ClaimLimit{Records: 1000, Bytes: 8 << 20}

// migratedURL is a new database with all sets.
func migratedURL(t *testing.T) string {
	t.Helper()
	return testenv.Prepared(t, "all",
		func(ctx context.Context, url string) error { return migrations.Up(ctx, url, "core", "events", "crawl") })
}

// migrated returns a pool of a relay's sessions on such a database.
func migrated(t *testing.T) *pgxpool.Pool { return connected(t, migratedURL(t)) }

// connected returns a pool of a relay's sessions.
func connected(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := connect(t.Context(), url, Config{Conns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// serving returns a store and the lanes that its owner holds.
func serving(t *testing.T, pool *pgxpool.Pool, layout outbox.Layout) (*store, uuid.UUID, []outbox.Lane) {
	t.Helper()
	s, err := openTable(t.Context(), pool, layout)
	if err != nil {
		t.Fatal(err)
	}
	owner := uuid.New()
	lanes := lease(t, s, owner, time.Minute)
	if len(lanes) != outbox.LaneCount {
		t.Fatalf("got %d lanes of a fresh table, want %d", len(lanes), outbox.LaneCount)
	}
	return s, owner, lanes
}

// lease makes one request and returns the lanes held then.
func lease(t *testing.T, s *store, owner uuid.UUID, ttl time.Duration) []outbox.Lane {
	t.Helper()
	leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return leased.Lanes
}

// vanish makes all relays look as if they had died a while ago.
func vanish(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, "UPDATE outbox_lanes SET expires_at = clock_timestamp() - interval '1 second'")
	exec(t, pool, "UPDATE outbox_relays SET expires_at = clock_timestamp() - interval '1 second'")
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// writeOrders inserts n events for each key, round robin, by plain SQL.
func writeOrders(t *testing.T, pool *pgxpool.Pool, n int, keys ...string) {
	t.Helper()
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
		SELECT 'order.placed', now(), 'Order', k, 'shop', jsonb_build_object('n', i)
		  FROM generate_series(1, $1::int) i, unnest($2::text[]) WITH ORDINALITY u (k, ord) ORDER BY i, ord`, n, keys)
}

// deliver claims, expects want records and settles them as delivered.
func deliver(t *testing.T, s *store, owner uuid.UUID, lanes []outbox.Lane, want int) {
	t.Helper()
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != want {
		t.Fatalf("claimed %d records, error %v, want %d", len(records), err, want)
	}
	var outcomes []outbox.Outcome
	for _, r := range records {
		outcomes = append(outcomes, outbox.Outcome{Record: r, State: outbox.Delivered})
	}
	if got, err := s.Settle(t.Context(), owner, lanes, outcomes); err != nil || got.Delivered != want || got.Lost != 0 {
		t.Fatalf("settled %+v, error %v", got, err)
	}
}

func TestClaimBoundsBytes(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, _, lanes := serving(t, pool, outbox.OutboxEvents())
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload)
		SELECT 'big', now(), 's', to_jsonb(repeat('x', 100000)) FROM generate_series(1, 50)`)
	limit := outbox.ClaimLimit{Records: 1000, Bytes: 1_000_000}
	first, err := s.Claim(t.Context(), lanes, limit)
	if err != nil || len(first) != 9 { // 100,002 bytes each with their quotes
		t.Fatalf("got %d records, error %v, want 9", len(first), err)
	}
	if ask := s.rows.Size.Limit(limit); ask > 10 {
		t.Errorf("the next claim would ask for %d rows, most of which it could not keep", ask)
	}
	tiny, err := s.Claim(t.Context(), lanes, outbox.ClaimLimit{Records: 1000, Bytes: 10})
	if err != nil || len(tiny) != 1 {
		t.Errorf("got %d records, error %v; a record above the limit must come alone, or it never would", len(tiny), err)
	}
}

func TestOpenRefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	old := outbox.OutboxEvents()
	old.Metadata = "meta_data"
	exec(t, pool, "CREATE TABLE other (id int)")
	for _, tt := range []struct {
		name   string
		layout outbox.Layout
		want   string
	}{
		{"column missing", old, "lacks meta_data: run: outbox migrate up --set core"},
		{"table missing", outbox.Layout{Table: "nowhere", ID: "a", Position: "b", Topic: "c", Payload: "d", DeliveredAt: "e",
			Attempts: "f", NextRetryAt: "g"}, "table nowhere does not exist"},
		{"own table", outbox.Layout{Table: "other", ID: "id", Position: "b", Topic: "c", Payload: "d", DeliveredAt: "e",
			Attempts: "f", NextRetryAt: "g"}, "lacks b, c, d, e, f, g: add the columns or correct the layout"},
		{"layout", outbox.Layout{Table: "a.b.c", Status: "s"}, "id: is required"},
	} {
		if _, err := openTable(t.Context(), pool, tt.layout); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %q in it", tt.name, err, tt.want)
		}
	}
	exec(t, pool, "DROP TABLE outbox_lanes")
	if _, err := openTable(t.Context(), pool, outbox.CrawlOutbox()); err == nil ||
		!strings.Contains(err.Error(), "outbox migrate up --set core") {
		t.Errorf("without lanes: got error %v", err)
	}
}

// After a claim that ran out of time none of its pool's connections is used again: their other ends
// may have vanished too, as behind a firewall that forgot them, and each would cost as long.
func TestClaimThatRanOutOfTimeConnectsAnew(t *testing.T) {
	t.Parallel()
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.OutboxLog()} {
		t.Run(layout.Table, func(t *testing.T) {
			t.Parallel()
			pool := connected(t, testenv.Prepared(t, "core_log",
				func(ctx context.Context, url string) error { return migrations.Up(ctx, url, "core", "log") }))
			s, err := NewDB(pool).OpenTable(t.Context(), layout)
			if err != nil {
				t.Fatal(err)
			}
			leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: uuid.New(), Name: "test", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			release := hold(t, pool, "LOCK TABLE "+layout.Table)
			before, idle := map[uint32]bool{}, []*pgxpool.Conn{}
			for range 3 {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				before[conn.Conn().PgConn().PID()], idle = true, append(idle, conn)
			}
			for _, conn := range idle {
				conn.Release()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err = s.Claim(ctx, leased.Lanes, everything)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is locked by session ") {
				t.Fatalf("error %v, want that it ran out of time, and the session that holds the lock", err)
			}
			release()
			for range 3 {
				if pid := query[int](t, pool, "SELECT pg_backend_pid()"); before[uint32(pid)] {
					t.Errorf("the connection to process %d is used again", pid)
				}
			}
			if _, err := s.Claim(t.Context(), leased.Lanes, everything); err != nil {
				t.Error(err)
			}
		})
	}
}
