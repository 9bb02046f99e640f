package postgres

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// The first claim of a store takes rows for large.
var fairly = outbox.ClaimLimit{Records: 4000, Bytes: 64 << 20, Fair: true}

// writeFor inserts n events for each tenant, tenant by tenant, over ten keys each.
func writeFor(t *testing.T, pool *pgxpool.Pool, n int, tenants ...string) {
	t.Helper()
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, tenant_id, aggregate_type, aggregate_id, source_bc, payload)
		SELECT 'order.placed', now(), u.tenant, 'Order', (i % 10)::text, 'shop', to_jsonb(i)
		  FROM unnest($2::text[]) WITH ORDINALITY u (tenant, ord), generate_series(1, $1::int) i ORDER BY ord, i`, n, tenants)
}

func claimed(
	t *testing.T, s *store, lanes []outbox.Lane, limit outbox.ClaimLimit,
) (records []*outbox.Record, of map[string]int) {
	t.Helper()
	records, err := s.Claim(t.Context(), lanes, limit)
	if err != nil {
		t.Fatal(err)
	}
	of = map[string]int{}
	seen, last := map[uuid.UUID]bool{}, map[string]int64{}
	for _, r := range records {
		if r.Position < last[r.TenantID] {
			t.Fatalf("tenant %s: position %d comes after %d", r.TenantID, r.Position, last[r.TenantID])
		}
		last[r.TenantID] = r.Position
		if seen[r.ID] {
			t.Fatalf("the row at position %d comes twice", r.Position)
		}
		seen[r.ID] = true
		of[r.TenantID]++
	}
	return records, of
}

// A tenant whose rows are all behind a key that waits costs a claim no more than the rows that it
// may look at.
func TestFairClaimBoundsItsSearch(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := migrated(t)
	s, _, lanes := serving(t, pool, outbox.OutboxEvents())
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, tenant_id, aggregate_type, aggregate_id, source_bc, payload, status, next_retry_at)
		SELECT 'a', now(), 'stuck', 'Order', '1', 's', '1', CASE WHEN i = 1 THEN 'FAILED' ELSE 'NEW' END, CASE WHEN i = 1 THEN now() + interval '1 hour' END FROM generate_series(1, 60000) i`)
	writeFor(t, pool, 3, "trickle")
	if _, of := claimed(t, s, lanes, fairly); of["trickle"] != 3 || len(of) != 1 {
		t.Errorf("got %v", of)
	}
	plan := explain(t, s, "(ANALYZE, COSTS OFF, TIMING OFF) "+s.fair.claim,
		[]any{pgtable.LaneBits(lanes), 4000, []int64{}, [][16]byte{}, []string{"stuck", "trickle"}, looksPerClaim / 2, 2000})
	// Of two loops, on average.
	if want := fmt.Sprintf("Rows Removed by Filter: %d", looksPerClaim/2/2); !strings.Contains(plan, want) {
		t.Errorf("want %q in:\n%s", want, plan)
	}
}

// Which tables can be shared by tenants is found when they are opened.
func TestFairClaimNeedsTenantKeysAndAnIndex(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := migrated(t)
	exec(t, pool,
		`CREATE TABLE mine (n bigserial, uid uuid NOT NULL DEFAULT gen_random_uuid(), kind text, body json, customer int, owner bigint, done_at timestamptz, tries int NOT NULL DEFAULT 0, due timestamptz)`)
	mine := outbox.Layout{Table: "mine", ID: "uid", Position: "n", Topic: "kind", Payload: "body", Key: "customer",
		KeyScope: []string{"owner"}, Tenant: "owner",
		DeliveredAt: "done_at", Attempts: "tries", NextRetryAt: "due"}
	shared := func(l outbox.Layout) bool {
		t.Helper()
		s, err := openTable(t.Context(), pool, l)
		if err != nil {
			t.Fatal(err)
		}
		return s.fair.claim != ""
	}
	unscoped, keyless := outbox.OutboxEvents(), outbox.OutboxEvents()
	unscoped.KeyScope = []string{"aggregate_type"}
	keyless.Key, keyless.KeyScope = "", nil
	for _, tt := range []struct {
		name string
		l    outbox.Layout
		want bool
	}{
		{"outbox_events", outbox.OutboxEvents(), true}, {"event_outbox", outbox.EventOutbox(), true},
		{"crawl_outbox", outbox.CrawlOutbox(), true},
		{"a key in several tenants", unscoped, false}, {"no keys", keyless, true}, {"no index", mine, false},
	} {
		if got := shared(tt.l); got != tt.want {
			t.Errorf("%s: shared %t, want %t", tt.name, got, tt.want)
		}
	}
	exec(t, pool, `CREATE INDEX other ON mine (owner, n) WHERE done_at IS NOT NULL`)
	if shared(mine) {
		t.Error("shared by an index of other rows")
	}
	exec(t, pool, `CREATE INDEX "The Index" ON mine (owner, n) WHERE done_at IS NULL`)
	if !shared(mine) {
		t.Error("not shared although there is an index")
	}
	s, _, lanes := serving(t, pool, mine)
	exec(t, pool, `INSERT INTO mine (kind, body, customer, owner) SELECT 'k', '1', i, 7 FROM generate_series(1, 100) i`)
	exec(t, pool, `INSERT INTO mine (kind, body, customer, owner) VALUES ('k', '2', 1, 8), ('k', '2', 1, NULL)`)
	if _, of := claimed(t, s, lanes, outbox.ClaimLimit{Records: 20, Bytes: 1 << 20, Fair: true}); of["8"] != 1 ||
		of["7"] != 10 {
		t.Errorf("got %v, want 10 of tenant 7 and the one of 8", of)
	}
	exec(t, pool, "DROP INDEX outbox_events_tenants")
	if shared(outbox.OutboxEvents()) {
		t.Error("outbox_events: shared without the index")
	}
}

// To cast to character is to cut to one letter; the tenants of a char(10) are not.
func TestFairClaimOfBlankPaddedTenants(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	exec(t, pool,
		`CREATE TABLE padded (n bigserial PRIMARY KEY, uid uuid NOT NULL DEFAULT gen_random_uuid(), kind text, body json, owner char(10), done_at timestamptz, tries int, due timestamptz)`)
	exec(t, pool, `CREATE INDEX ON padded (owner, n) WHERE done_at IS NULL`)
	exec(t, pool, `INSERT INTO padded (kind, body, owner) SELECT 'k', '1', 'flood' FROM generate_series(1, 100)`)
	exec(t, pool, `INSERT INTO padded (kind, body, owner) VALUES ('k', '1', 'trickle')`)
	s, _, lanes := serving(t, pool,
		outbox.Layout{Table: "padded", ID: "uid", Position: "n", Topic: "kind", Payload: "body", Tenant: "owner",
			DeliveredAt: "done_at", Attempts: "tries", NextRetryAt: "due"})
	if _, of := claimed(t, s, lanes, outbox.ClaimLimit{Records: 20, Bytes: 1 << 20, Fair: true}); of["flood"] != 10 ||
		of["trickle"] != 1 {
		t.Errorf("got %v, want 10 of the flood and the trickle's one", of)
	}
}

// A tenant that is found alone is not searched for others at every claim, and not for long either.
func TestFairClaimOfALoneTenant(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	writeFor(t, pool, 100, "flood")
	s, _, lanes := serving(t, pool, outbox.OutboxEvents())
	limit := outbox.ClaimLimit{Records: 20, Bytes: 1 << 20, Fair: true}
	if _, of := claimed(t, s, lanes, limit); of["flood"] != 20 {
		t.Fatalf("got %v, want 20 of the flood", of)
	}
	writeFor(t, pool, 1, "trickle")
	lane, late := lanes[0].Number, time.Now().Add(aloneAtMost)
	s.fair.mu.Lock()
	alone := s.fair.alone
	s.fair.alone = late
	s.fair.mu.Unlock()
	if alone.IsZero() || alone.After(late) {
		t.Errorf("taken to be alone until %v, want at most %v", alone, late)
	}
	if tenants, err := s.nextTenants(t.Context(), lane); err != nil || len(tenants) > 0 && time.Now().Before(late) {
		t.Errorf("searched while the tenant is taken to be alone: %q, error %v", tenants, err)
	}
	time.Sleep(time.Until(late))
	if _, of := claimed(t, s, lanes, limit); of["trickle"] != 1 {
		t.Errorf("got %v, want the trickle's one too", of)
	}
}

func TestFairClaimPlans(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := migrated(t)
	apps := query[[]uuid.UUID](t, pool,
		"WITH a AS (INSERT INTO apps (name, namespace) SELECT i, 'app ' || i FROM generate_series(1, 20) i RETURNING id) "+
			"SELECT array_agg(id) FROM a")
	writeFor(t, pool, 5000, "sent")
	exec(t, pool, "UPDATE outbox_events SET status = 'SENT'")
	writeFor(t, pool, 500, "a", "b")
	exec(t, pool, `INSERT INTO event_outbox (app_id, event_id, event_type, payload, status)
		SELECT ($1::uuid[])[1 + i % 20], gen_random_uuid(), 'a.b', '{}', CASE WHEN i <= 5000 THEN 'published' ELSE 'pending' END FROM generate_series(1, 6000) i`, apps)
	exec(t, pool, "ANALYZE")
	for _, l := range []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox()} {
		s, _, lanes := serving(t, pool, l)
		tenants, err := s.nextTenants(t.Context(), 0)
		if err != nil || len(tenants) != map[string]int{"outbox_events": 2, "event_outbox": 20}[l.Table] {
			t.Fatalf("%s: tenants %q, error %v", l.Table, tenants, err)
		}
		for name, plan := range map[string]string{
			"claim_tenants": explain(t, s, s.fair.tenants, []any{nil, tenantsPerClaim}),
			"claim_fair": explain(t, s, s.fair.claim,
				[]any{pgtable.LaneBits(lanes), 4000, []int64{}, [][16]byte{}, tenants, 1000, 100}),
		} {
			// One sort, of what was chosen.
			if !strings.Contains(plan, "using "+l.Table+"_tenants") || strings.Contains(plan, "Seq Scan on "+l.Table) ||
				name == "claim_fair" && (!strings.Contains(plan, "hashed SubPlan") || strings.Count(plan, "Sort Key") > 1) {
				t.Errorf("%s of %s:\n%s", name, l.Table, plan)
			}
		}
		if records, of := claimed(t, s, lanes,
			outbox.ClaimLimit{Records: 200, Bytes: 8 << 20, Fair: true}); len(of) != len(tenants) || len(records) < 190 {
			t.Errorf("%s: got %v", l.Table, of)
		}
	}
}
