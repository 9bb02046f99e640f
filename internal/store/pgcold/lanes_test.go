package pgcold_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func laneReport(t *testing.T, pool *pgxpool.Pool, layout outbox.Layout, limit int) operate.LaneReport {
	t.Helper()
	r, err := browser(t, pool, layout).Lanes(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Lanes) != outbox.LaneCount {
		t.Fatalf("got %d lanes", len(r.Lanes))
	}
	return r
}

func states(r operate.LaneReport) map[string]int {
	n := map[string]int{}
	for i, l := range r.Lanes {
		if l.Lane == i {
			n[l.State]++
		}
	}
	return n
}

func TestLanesTellWhoServesThem(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	s := table(t, pool, outbox.OutboxEvents())
	if r := laneReport(t, pool, outbox.OutboxEvents(), 100); states(r)["free"] != 64 || len(r.Relays) != 0 ||
		r.Counted != 0 || r.Bounded {
		t.Errorf("before any relay: %+v", r)
	}
	lease := func(owner uuid.UUID, name string, ttl time.Duration) []outbox.Lane {
		t.Helper()
		leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: name, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		return leased.Lanes
	}
	first, second := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	lanes := lease(first, "one", time.Minute)
	lease(second, "two", time.Hour)
	if r := laneReport(t, pool, outbox.OutboxEvents(), 100); len(r.Relays) != 2 ||
		r.Relays[0].Share != 32 || r.Relays[1].Share != 32 ||
		r.Relays[0].Lanes != 64 || r.Relays[1].Lanes != 0 {
		t.Errorf("the second has joined: %+v", r.Relays)
	}
	if err := s.Release(t.Context(), first, lanes[:24]); err != nil {
		t.Fatal(err)
	}
	if n := len(lease(second, "two", time.Hour)); n != 24 {
		t.Fatalf("the second got %d lanes", n)
	}
	if err := s.Release(t.Context(), first, lanes[24:32]); err != nil {
		t.Fatal(err)
	}
	exec(t, pool,
		"UPDATE outbox_lanes SET owner = $2, expires_at = now() - interval '3 seconds', crashes = 2, trial_size = 1, "+
			"trial_event = $1 WHERE lane = 63", second, uuid.New())
	r := laneReport(t, pool, outbox.OutboxEvents(), 100)
	if n := states(r); n["held"] != 24+31 || n["free"] != 8 || n["lapsed"] != 1 {
		t.Errorf("got %v", n)
	}
	if l := r.Lanes[0]; *l.Owner != second || *l.Name != "two" || l.Epoch != lanes[0].Epoch+1 || *l.ExpiresIn < 3500 ||
		*l.ExpiresIn > 3600 || l.Suspect {
		t.Errorf("lane 0: %+v", l)
	}
	if l := r.Lanes[63]; *l.ExpiresIn > -3 || *l.ExpiresIn < -60 || !l.Suspect || l.Crashes != 2 || l.TrialSize != 1 ||
		*l.TrialEvent != second {
		t.Errorf("lane 63: %+v", l)
	}
	exec(t, pool, "UPDATE outbox_relays SET expires_at = now() - interval '1 second' WHERE owner = $1", second)
	if r := laneReport(t, pool, outbox.OutboxEvents(), 100); r.Relays[0].Share != 64 || r.Relays[1].Share != 0 ||
		r.Relays[1].ExpiresIn >= 0 {
		t.Errorf("the second is gone: %+v", r.Relays)
	}
}

func TestLanesTellTheirBacklog(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	app := query[uuid.UUID](t, pool, "SELECT id FROM apps WHERE namespace = 'default'")
	run := query[uuid.UUID](t, pool, "INSERT INTO crawl_runs (app_package) VALUES ('com.example') RETURNING id")
	exec(t, pool,
		"INSERT INTO event_outbox (app_id, event_id, event_type, payload, event_key) SELECT $1, outbox_uuidv7(), 'a.b', "+
			"'{}', i % 7 FROM generate_series(1, 70) i", app)
	exec(t, pool,
		"INSERT INTO crawl_outbox (crawl_id, event_type, payload, created_at) SELECT $1, 'PROCESSING', '{}', now() - "+
			"interval '1 minute' FROM generate_series(1, 70) i", run)
	exec(t, pool,
		"INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload) SELECT "+
			"'order.placed', now(), 'Order', chr(97 + i % 7), 'shop', '{}' FROM generate_series(0, 69) i")
	exec(t, pool, "UPDATE outbox_events SET created_at = now() - interval '1 hour' WHERE position = 1")
	for _, tt := range []struct {
		layout outbox.Layout
		oldest float64
	}{{outbox.OutboxEvents(), 3600}, {outbox.EventOutbox(), 0}, {outbox.CrawlOutbox(), 60}} {
		s, lanes := serving(t, pool, tt.layout)
		want := map[int16]int{}
		records, err := s.Claim(t.Context(), lanes, outbox.ClaimLimit{Records: 1000, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			want[r.Lane]++
		}
		r := laneReport(t, pool, tt.layout, 1000)
		oldest := 0.0
		for _, l := range r.Lanes {
			if l.Backlog != want[int16(l.Lane)] || (l.Backlog > 0) != (l.Oldest != nil) {
				t.Errorf("%s: lane %d has %d events, want %d", r.Table, l.Lane, l.Backlog, want[int16(l.Lane)])
			}
			if l.Oldest != nil {
				oldest = max(oldest, *l.Oldest)
			}
		}
		if r.Counted != 70 || r.Bounded || oldest < tt.oldest || oldest > tt.oldest+30 {
			t.Errorf("%s: counted %d, bounded %t, oldest %.1f s, want 70 and %.0f s", r.Table, r.Counted, r.Bounded, oldest,
				tt.oldest)
		}
		if r := laneReport(t, pool, tt.layout, 50); r.Counted != 50 || !r.Bounded {
			t.Errorf("%s: counted %d of at most 50, bounded %t", r.Table, r.Counted, r.Bounded)
		}
	}
}

// Of a log the rows behind each lane's own position are counted, and everything else is refused
// with what to do.
func TestLanesOfALog(t *testing.T) {
	t.Parallel()
	url := testenv.Prepared(t, "log", func(ctx context.Context, url string) error {
		return migrations.Up(ctx, url, "core", "log")
	})
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	exec(t, pool, "INSERT INTO outbox_log (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload) "+
		"SELECT 'order.placed', now(), 'Order', 'k' || i, 'shop', '{}' FROM generate_series(1, 200) i")
	s, lanes := serving(t, pool, outbox.OutboxLog())
	if r := laneReport(t, pool, outbox.OutboxLog(), 1000); r.Counted != 200 || r.Bounded || states(r)["held"] != 64 {
		t.Errorf("counted %d, bounded %t, %v, want 200 in held lanes", r.Counted, r.Bounded, states(r))
	}
	if r := laneReport(t, pool, outbox.OutboxLog(), 50); r.Counted != 50 || !r.Bounded {
		t.Errorf("counted %d of at most 50, bounded %t", r.Counted, r.Bounded)
	}
	half := outbox.ClaimLimit{Records: 100, Bytes: 1 << 20}
	records, err := s.Claim(t.Context(), lanes[:32], half)
	if err != nil || len(records) == 0 {
		t.Fatalf("claimed %d, %v", len(records), err)
	}
	owner := query[uuid.UUID](t, pool, "SELECT owner FROM outbox_relays")
	outcomes := make([]outbox.Outcome, len(records))
	for i, r := range records {
		outcomes[i] = outbox.Outcome{Record: r, State: outbox.Delivered}
	}
	if _, err := s.Settle(t.Context(), owner, lanes[:32], outcomes); err != nil {
		t.Fatal(err)
	}
	r := laneReport(t, pool, outbox.OutboxLog(), 1000)
	if want := 200 - len(records); r.Counted != want {
		t.Errorf("counted %d after %d were settled, want %d", r.Counted, len(records), want)
	}
	for _, rec := range records {
		if l := r.Lanes[rec.Lane]; l.Backlog != 0 || l.Oldest != nil {
			t.Errorf("lane %d has %d left", rec.Lane, l.Backlog)
		}
	}
	if _, _, err := browser(t, pool, outbox.OutboxLog()).List(t.Context(), operate.Filter{}); err == nil ||
		!strings.Contains(err.Error(), "--to SINK") {
		t.Errorf("list: %v", err)
	}
}

// A login that may see one tenant at a time sees the leases, and is told that it cannot see the
// backlog.
func TestLanesSayWhatIsHidden(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	serving(t, pool, outbox.EventOutbox())
	if r := laneReport(t, as(t, pool, "outbox_owner"), outbox.EventOutbox(), 100); !r.Hidden || states(r)["held"] != 64 {
		t.Errorf("got %+v", r)
	}
}
