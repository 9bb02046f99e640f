package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// leased asks once.
func leased(t *testing.T, s *store, owner uuid.UUID, ttl time.Duration) outbox.Leased {
	t.Helper()
	got, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A relay vanished and the clock was set back by hours, or came up without a battery: its lanes are
// served a lease later, not hours later. One that is alive keeps its own.
func TestLeasesFromBeforeAClockWasSetBack(t *testing.T) {
	t.Parallel()
	db := filled(t)
	s, alive, lanes := serving(t, db, outbox.OutboxEvents())
	const ttl = 300 * time.Millisecond
	setBack := func() {
		for _, table := range []string{"outbox_lanes", "outbox_relays"} {
			exec(t, db, "UPDATE "+table+" SET expires_at = ?1", stamp(time.Now().Add(6*time.Hour)))
		}
	}
	other := uuid.New()
	setBack()
	if got := leased(t, s, other, time.Minute); len(got.Lanes) != 0 || got.Share != 32 {
		t.Errorf("with the first relay alive, the second holds %d lanes, share %d", len(got.Lanes), got.Share)
	}
	if got := leased(t, s, alive, time.Minute); len(got.Lanes) != len(lanes) || got.Lanes[0].Epoch != lanes[0].Epoch ||
		got.Remaining > time.Minute {
		t.Errorf("the first relay holds %d lanes for %s", len(got.Lanes), got.Remaining)
	}
	// Of its enrolment nothing is left.
	exec(t, db, "UPDATE outbox_lanes SET expires_at = ?1", stamp(time.Now().Add(6*time.Hour)))
	exec(t, db, "DELETE FROM outbox_relays WHERE owner = ?1", alive)
	leased(t, s, other, time.Minute)
	if got := value(t, db, "SELECT count(*) FROM outbox_lanes WHERE expires_at > ?1",
		stamp(time.Now().Add(time.Hour))); got != "0" {
		t.Errorf("%s lanes are still kept for hours", got)
	}
	setBack()
	began := time.Now()
	for got := leased(t, s, other, ttl); len(got.Lanes) != 64 || got.Share != 64; got = leased(t, s, other, ttl) {
		if time.Since(began) > tier.Patience() {
			t.Fatalf("%s later the second relay holds %d lanes, share %d", time.Since(began), len(got.Lanes), got.Share)
		}
		time.Sleep(ttl / 6)
	}
	if took := time.Since(began); took < ttl {
		t.Errorf("it took them after %s, the first one had no time to show that it lives", took)
	}
}

// Somebody kept the write lock for longer than a lease. Whoever gets it first takes nothing from
// the others, who have waited as long.
func TestRelaysThatLapsedTogetherKeepTheirLanes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	a, b := reopened(t, path), reopened(t, path)
	if err := upAll(t, a); err != nil {
		t.Fatal(err)
	}
	first, one, lanes := serving(t, a, outbox.OutboxEvents())
	second, err := openTable(t.Context(), b, outbox.OutboxEvents())
	if err != nil {
		t.Fatal(err)
	}
	two := uuid.New()
	leased(t, second, two, time.Minute)
	if err := first.Release(t.Context(), one, lanes[32:]); err != nil {
		t.Fatal(err)
	}
	if got := leased(t, second, two, time.Minute); len(got.Lanes) != 32 {
		t.Fatalf("the second relay holds %d lanes", len(got.Lanes))
	}
	for _, table := range []string{"outbox_lanes", "outbox_relays"} {
		exec(t, a, "UPDATE "+table+" SET expires_at = ?1", stamp(time.Now().Add(-12*time.Second)))
	}
	for _, r := range []struct {
		*store
		owner uuid.UUID
	}{{first, one}, {second, two}} {
		if got := leased(t, r.store, r.owner, time.Minute); len(got.Lanes) != 32 {
			t.Errorf("it holds %d lanes", len(got.Lanes))
		}
	}
	// At the next check it takes what is still lapsed: the other one has vanished.
	for _, table := range []string{"outbox_lanes", "outbox_relays"} {
		exec(t, a, "UPDATE "+table+" SET expires_at = ?1", stamp(time.Now().Add(-12*time.Second)))
	}
	for i, want := range []int{32, 64} {
		if got := leased(t, first, one, time.Minute); len(got.Lanes) != want {
			t.Errorf("check %d: it holds %d lanes, want %d", i, len(got.Lanes), want)
		}
	}
}

// A table has its lanes once, however a layout spells its name.
func TestOneTableUnderSeveralNames(t *testing.T) {
	t.Parallel()
	db := filled(t)
	manyEvents(t, db, 1, "a")
	_, owner, lanes := serving(t, db, outbox.OutboxEvents())
	for _, name := range []string{"OUTBOX_EVENTS", "main.outbox_events", "MAIN.Outbox_Events"} {
		layout := outbox.OutboxEvents()
		layout.Table = name
		other, err := openTable(t.Context(), db, layout)
		if err != nil {
			t.Fatal(err)
		}
		if got := leased(t, other, uuid.New(), time.Minute); len(got.Lanes) != 0 {
			t.Errorf("%s: another relay holds %d lanes as well", name, len(got.Lanes))
		}
		if got := leased(t, other, owner, time.Minute); len(got.Lanes) != len(lanes) {
			t.Errorf("%s: its relay holds %d lanes", name, len(got.Lanes))
		}
		if !other.trusted {
			t.Errorf("%s is not known to be ours", name)
		}
	}
	layout := outbox.OutboxEvents()
	layout.Table = "Main.OUTBOX_events"
	other, err := openTable(t.Context(), db, layout)
	if err != nil {
		t.Fatal(err)
	}
	records, err := other.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	if _, err := other.Settle(t.Context(), owner, lanes,
		[]outbox.Outcome{{Record: records[0], State: outbox.Dead,
			Failures: []outbox.Failure{{Error: "x", Reason: outbox.ReasonDeliveryFailed}}}}); err != nil {
		t.Fatal(err)
	}
	if got := value(t, db, "SELECT outbox_table FROM job_dlq"); got != "outbox_events" {
		t.Errorf("its letter is of %q", got)
	}
}

// A time of a retry that plain SQL has written, in any of SQLite's forms: a mapped table's is read
// as the time it is, ours refuse what is not in the one form.
func TestRetryTimesOfPlainSQL(t *testing.T) {
	t.Parallel()
	db := filled(t)
	layout := anything(t, db)
	exec(t, db, "CREATE INDEX waiting ON anything (due) WHERE due IS NOT NULL")
	s, _, lanes := serving(t, db, layout)
	if plan := planOf(t, db, s.sql.claim.text); !strings.Contains(plan, "USING INDEX waiting") {
		t.Errorf("the index of what waits is not used:\n%s", plan)
	}
	manyEvents(t, db, 1, "a")
	exec(t, db,
		"INSERT INTO event_outbox (app_id, event_id, event_type, payload) SELECT id, id, 'x', '1' FROM apps LIMIT 1")
	exec(t, db, "INSERT INTO crawl_runs (id, app_package) VALUES (?1, 'x')", uuid.NewString())
	exec(t, db, "INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT id, 'x', '1' FROM crawl_runs")
	for _, tt := range []struct {
		form      string
		due, ours bool
	}{
		{"strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '+1 hour')", false, true},
		{"strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-1 second')", true, true},
		{"datetime('now', '+1 hour')", false, false},
		{"datetime('now', '-1 second')", true, false},
		{"strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '+1 hour')", false, false},
		{"strftime('%Y-%m-%dT%H:%M:%S+05:00', 'now', '+6 hours')", false, false},
		{"strftime('%Y-%m-%dT%H:%M:%S+05:00', 'now', '+4 hours')", true, false},
		{"strftime('%Y-%m-%dT%H:%M:%S-05:00', 'now', '-4 hours')", false, false},
		{"'tomorrow or so'", true, false},
		{"x'00'", true, false},
	} {
		exec(t, db, "DELETE FROM anything")
		for _, at := range []string{tt.form, "NULL"} {
			exec(t, db, "INSERT INTO anything (id, kind, body, customer, due) VALUES (?1, 'x', '1', 'a', "+at+")",
				uuid.NewString())
		}
		records, err := s.Claim(t.Context(), lanes, everything)
		if due := len(records) == 2; err != nil || due != tt.due || !due && len(records) != 0 {
			t.Errorf("%s: claimed %d of the key, error %v", tt.form, len(records), err)
		}
		for _, table := range []string{"outbox_events", "event_outbox", "crawl_outbox"} {
			_, err := db.write.ExecContext(t.Context(), "UPDATE "+table+" SET next_retry_at = "+tt.form)
			if (err == nil) != tt.ours || err != nil && tt.form[0] != 'x' &&
				!strings.Contains(err.Error(), "next_retry_at GLOB") {
				t.Errorf("%s of %s: error %v", tt.form, table, err)
			}
		}
	}
}
