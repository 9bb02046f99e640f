package pgcold_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
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
	owner := pgtest.Query[uuid.UUID](t, pool, "SELECT owner FROM outbox_relays")
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
		!strings.Contains(err.Error(), "--sink SINK") {
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
