package sqlite

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

var everything = outbox.ClaimLimit{Records: 1000, Bytes: 8 << 20}

// serving returns a store and the lanes that its owner holds.
func serving(t *testing.T, db *DB, layout outbox.Layout) (*store, uuid.UUID, []outbox.Lane) {
	t.Helper()
	s, err := openTable(t.Context(), db, layout)
	if err != nil {
		t.Fatal(err)
	}
	owner := uuid.New()
	leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Minute})
	if err != nil || len(leased.Lanes) != outbox.LaneCount {
		t.Fatalf("got %d lanes of a fresh table, error %v", len(leased.Lanes), err)
	}
	return s, owner, leased.Lanes
}

// reopened opens a file once more, as another process does.
func reopened(t testing.TB, path string) *DB {
	t.Helper()
	db, err := Create(t.Context(), path, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func exec(t *testing.T, db *DB, text string, args ...any) {
	t.Helper()
	if _, err := db.write.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func value(t *testing.T, db *DB, query string, args ...any) (v string) {
	t.Helper()
	if err := db.read.QueryRowContext(t.Context(), "SELECT coalesce(CAST(("+query+") AS TEXT), '')",
		args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// manyEvents inserts n events over ten keys for each tenant, by plain SQL.
func manyEvents(t *testing.T, db *DB, n int, tenants ...string) {
	t.Helper()
	for _, tenant := range tenants {
		exec(t, db, `INSERT INTO outbox_events (event_topic, occurred_at, tenant_id, aggregate_type, aggregate_id, source_bc, payload)
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
			SELECT 'order.placed', '2026-01-02T03:04:05.000000Z', ?2, 'Order', CAST(i % 10 AS TEXT), 'shop', json_object('n', i) FROM n`, n, tenant)
	}
}

// The plans of a file that nobody has analysed, of one that was analysed when its tables were
// empty, and of one with a backlog behind many delivered rows.
func TestEnginePlans(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	db := filled(t)
	check := func(state string) {
		t.Helper()
		for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox(), outbox.CrawlOutbox()} {
			layout.Settle = outbox.SettleArchive // which has the statements of all modes
			s, owner, _ := serving(t, db, layout)
			if s.fair.claim.text == "" {
				t.Fatalf("%s, %s: claims cannot be shared", layout.Table, state)
			}
			undelivered, waiting, tenants := layout.Table+"_undelivered", layout.Table+"_waiting", layout.Table+"_tenants"
			for _, tt := range []struct {
				name, text string
				indexes    []string
			}{
				{"claim", s.sql.claim.text, []string{undelivered, waiting}},
				{"claim_fair", s.fair.claim.text, []string{tenants, waiting}},
				{"claim_tenants", s.fair.tenants.text, []string{tenants}},
				{"backlog", s.sql.backlog.text, []string{undelivered}},
				{"settle_delivered", s.sql.settleDelivered.text, []string{"INTEGER PRIMARY KEY"}},
				{"settle_delete", s.sql.settleDelete.text, []string{"INTEGER PRIMARY KEY"}},
				{"settle_archive", s.sql.settleArchive.text, []string{"INTEGER PRIMARY KEY"}},
				{"settle_known", s.sql.settleKnown.text, []string{"INTEGER PRIMARY KEY"}},
				{"settle_retry", s.sql.settleRetry.text, []string{"INTEGER PRIMARY KEY"}},
				{"settle_letter", s.sql.settleLetter.text, []string{"INTEGER PRIMARY KEY"}},
				{"settle_dead", s.sql.settleDead.text, []string{"INTEGER PRIMARY KEY"}},
				{"settle_held", s.sql.settleHeld.text, []string{"PRIMARY KEY"}},
				{"lease_due", s.sql.leaseDue, []string{"PRIMARY KEY"}},
				{"lease_cut", s.sql.leaseCutLanes, []string{"PRIMARY KEY"}},
				{"lease_cut of relays", s.sql.leaseCutRelays, []string{"PRIMARY KEY"}},
				{"lease_lapsed", s.sql.leaseLapsed, []string{"PRIMARY KEY"}},
				{"lease_take", s.sql.leaseTake, []string{"PRIMARY KEY"}},
				{"lease_held", s.sql.leaseHeld, []string{"PRIMARY KEY"}},
				{"lease_release", s.sql.leaseRelease, []string{"PRIMARY KEY"}},
				{"lease_leave", s.sql.leaseLeave, []string{"PRIMARY KEY"}},
				{"lease_mark", s.sql.leaseMark, []string{"PRIMARY KEY"}},
				{"lease_sweep", s.sql.leaseSweep, []string{"PRIMARY KEY"}},
				{"lease_quit", s.sql.leaseQuit, []string{"PRIMARY KEY"}},
			} {
				plan := planOf(t, db, tt.text)
				for _, index := range tt.indexes {
					if !strings.Contains(plan, index) {
						t.Errorf("%s of %s, %s: %s is not used:\n%s", tt.name, layout.Table, state, index, plan)
					}
				}
				for _, line := range strings.Split(plan, "\n") {
					// Which is what it would be a scan of.
					scans := strings.Contains(line, "SCAN e") && !strings.Contains(line, "USING") &&
						!strings.Contains(plan, "CO-ROUTINE e")
					// 64 lanes may be sorted.
					sorts := strings.Contains(line, "TEMP B-TREE FOR ORDER BY") && !strings.HasPrefix(tt.name, "lease_")
					if scans || sorts || strings.Contains(line, "SCAN "+layout.Table) {
						t.Errorf("%s of %s, %s: %s", tt.name, layout.Table, state, line)
					}
				}
			}
			if err := s.Leave(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("fresh")
	exec(t, db, "ANALYZE")
	check("analysed when empty")
	manyEvents(t, db, 4000, "sent")
	exec(t, db, "UPDATE outbox_events SET status = 'SENT'")
	manyEvents(t, db, 500, "a", "b")
	check("a backlog, with statistics from before")
	exec(t, db, "ANALYZE")
	check("a backlog, analysed")
}

// A statement that the planner compiles anew at each use costs more than it does: see claim.sql.
func TestClaimIsCompiledOnce(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s, _, lanes := serving(t, db, outbox.OutboxEvents())
	claim, compile := time.Hour, time.Hour
	for range 50 {
		start := time.Now()
		if _, err := s.Claim(t.Context(), lanes, everything); err != nil {
			t.Fatal(err)
		}
		claim = min(claim, time.Since(start))
		start = time.Now()
		if err := db.compile(t.Context(), s.sql.claim.text); err != nil {
			t.Fatal(err)
		}
		compile = min(compile, time.Since(start))
	}
	if claim > compile*2/3 {
		t.Errorf("a claim that finds nothing takes %s, compiling it %s", claim, compile)
	}
}

// Lanes are computed in the database, so that writers and tools in any language agree; these values
// are fixed for ever.
func TestLanesAreFixed(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s, _, lanes := serving(t, db, outbox.OutboxEvents())
	for i, key := range []string{"", "1", "42", "order-1234567", "ü", "ключ",
		"a1b2c3d4-0000-7000-8000-0123456789ab"} {
		exec(t, db,
			`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, aggregate_id) VALUES ('t', '2026-01-02T03:04:05.000000Z', 's', '1', ?1)`, key)
		records, err := s.Claim(t.Context(), lanes, everything)
		if err != nil || len(records) != i+1 {
			t.Fatalf("%d records, error %v", len(records), err)
		}
		runes, sum := []rune(key), 0
		for n, weight := range []int{1, 11, 37, 59} {
			if at := len(runes) - 1 - n; at >= 0 {
				sum += int(runes[at]) * weight
			}
		}
		if want := int16((len(runes)*7 + sum) & 63); records[i].Lane != want {
			t.Errorf("key %q is in lane %d, want %d", key, records[i].Lane, want)
		}
	}
	// An id of any shape has a lane too, or its row would never be seen.
	exec(t, db,
		`INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, payload) VALUES ('', 'empty', '2026-01-02T03:04:05.000000Z', 's', '1'), ('ab', 'short', '2026-01-02T03:04:05.000000Z', 's', '1')`)
	if records, err := s.Claim(t.Context(), lanes, everything); err != nil || len(records) != 9 {
		t.Errorf("%d records, error %v", len(records), err)
	}
}

// A tenant whose rows are all behind a key that waits costs a claim no more than the rows that it
// may look at, and does not hold up the others.
func TestFairClaimBoundsItsSearch(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s, _, lanes := serving(t, db, outbox.OutboxEvents())
	exec(t, db, `INSERT INTO outbox_events (event_topic, occurred_at, tenant_id, aggregate_id, source_bc, payload)
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT 'a', '2026-01-02T03:04:05.000000Z', 'stuck', '1', 's', '1' FROM n`, looksPerClaim/2+100)
	exec(t, db,
		"UPDATE outbox_events SET status = 'FAILED', next_retry_at = '9999-01-01T00:00:00.000000Z' WHERE position = 1")
	manyEvents(t, db, 3, "trickle")
	exec(t, db,
		`INSERT INTO outbox_events (event_topic, occurred_at, tenant_id, aggregate_id, source_bc, payload) VALUES ('deep', '2026-01-02T03:04:05.000000Z', 'stuck', 'free', 's', '1')`)
	fair := everything
	fair.Fair = true
	// Once, so that the statements are compiled.
	if records, err := s.Claim(t.Context(), lanes, fair); err != nil || len(records) != 4 {
		t.Errorf("%d records, error %v; want the 3 of trickle, and what lies deep as one of the oldest", len(records), err)
	}
	var shares []*outbox.Record
	err := db.snapshot(t.Context(), func(tx *sql.Tx) (err error) {
		shares, _, err = s.readShares(t.Context(), tx, 0, laneBits(lanes), stamp(time.Now()), fair)
		return err
	})
	if err != nil || len(shares) != 3 || shares[0].TenantID != "trickle" {
		t.Errorf("shares of %d records, error %v; want the 3 of trickle", len(shares), err)
	}
}

// Which tables can be shared by tenants is found when they are opened.
func TestFairClaimNeedsTenantKeysAndAnIndex(t *testing.T) {
	t.Parallel()
	db := filled(t,
		`CREATE TABLE mine (n INTEGER PRIMARY KEY, uid TEXT NOT NULL, kind, body, customer INT, owner INT, done_at DATETIME, tries INT, due DATETIME)`)
	mine := outbox.Layout{Table: "mine", ID: "uid", Position: "n", Topic: "kind", Payload: "body", Key: "customer",
		KeyScope: []string{"owner"}, Tenant: "owner",
		DeliveredAt: "done_at", Attempts: "tries", NextRetryAt: "due"}
	shared := func(l outbox.Layout) bool {
		t.Helper()
		s, err := openTable(t.Context(), db, l)
		if err != nil {
			t.Fatal(err)
		}
		return s.fair.claim.text != ""
	}
	unscoped, keyless := outbox.OutboxEvents(), outbox.OutboxEvents()
	unscoped.KeyScope = []string{"aggregate_type"}
	keyless.Key, keyless.KeyScope = "", nil
	if shared(unscoped) || !shared(keyless) || shared(mine) {
		t.Errorf("a key in several tenants: %t, no keys: %t, no index: %t; want only the second", shared(unscoped),
			shared(keyless), shared(mine))
	}
	exec(t, db, `CREATE INDEX other ON mine (owner, n) WHERE done_at IS NOT NULL`)
	exec(t, db, `CREATE INDEX whole ON mine (owner, n)`)
	if shared(mine) {
		t.Error("shared by an index of other rows, or of all")
	}
	exec(t, db, `DROP INDEX whole`)
	exec(t, db, `CREATE INDEX "The Index" ON mine (owner) WHERE done_at IS NULL`)
	if !shared(mine) {
		t.Error("not shared although there is an index")
	}
	s, _, lanes := serving(t, db, mine)
	exec(t, db, `INSERT INTO mine (uid, kind, body, customer, owner) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
		SELECT printf('00000000-0000-4000-8000-%012d', i), 'k', '1', i, 7 FROM n`)
	exec(t, db,
		`INSERT INTO mine (uid, kind, body, customer, owner) VALUES ('00000000-0000-4000-8000-00000000aaaa', 'k', '2', 1, 8), ('00000000-0000-4000-8000-00000000bbbb', 'k', '2', 1, NULL)`)
	records, err := s.Claim(t.Context(), lanes, outbox.ClaimLimit{Records: 20, Bytes: 1 << 20, Fair: true})
	of := map[string]int{}
	for _, r := range records {
		of[r.TenantID]++
	}
	if err != nil || fmt.Sprint(of) != "map[7:10 8:1]" {
		t.Errorf("got %v, error %v; want 10 of tenant 7 and the one of 8", of, err)
	}
}
