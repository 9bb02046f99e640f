package postgres

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// delivered claims everything, as delivered.
func delivered(t *testing.T, s outbox.Store, lanes []outbox.Lane) []outbox.Outcome {
	t.Helper()
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := make([]outbox.Outcome, len(records))
	for i, r := range records {
		outcomes[i] = outbox.Outcome{Record: r, State: outbox.Delivered, DeliveredTo: []string{"x"}}
	}
	return outcomes
}

// settleAll settles everything as delivered.
func settleAll(t *testing.T, s *store, owner uuid.UUID, lanes []outbox.Lane) (outbox.Settled, *outbox.RefusedError) {
	t.Helper()
	settled, err := s.Settle(t.Context(), owner, lanes, delivered(t, s, lanes))
	var refusal *outbox.RefusedError
	if err != nil && !errors.As(err, &refusal) {
		t.Fatal(err)
	}
	return settled, refusal
}

// Whatever a server that is well says to one row, the others are settled; what was sent is noted
// where the row takes that.
func TestSettleIsolatesAnyRefusal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, body string }{
		{"raised", "RAISE 'not this one'"},
		{"insufficient privilege", "RAISE insufficient_privilege"},
		{"deadlock", "RAISE deadlock_detected"},
		{"lock timeout", "RAISE lock_not_available"},
		{"canceled", "RAISE query_canceled"},
		{"internal error", "RAISE internal_error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := migrated(t)
			s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
			exec(t, pool,
				`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.aggregate_id = 'never' THEN `+tt.body+
					`; END IF; RETURN NEW; END $$`)
			exec(t, pool, `CREATE TRIGGER refuse BEFORE UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()`)
			writeOrders(t, pool, 20, "a", "never", "b")
			settled, refusal := settleAll(t, s, owner, lanes)
			if settled.Delivered != 40 || settled.Lost != 0 || refusal == nil || len(refusal.Outcomes) != 20 {
				t.Fatalf("settled %+v, %v, want 40 settled and 20 refused", settled, refusal)
			}
			for _, o := range refusal.Outcomes {
				if o.Record.AggregateID != "never" || o.State != outbox.Delivered {
					t.Fatalf("refused: %+v of %s", o, o.Record.AggregateID)
				}
			}
			exec(t, pool, "DROP TRIGGER refuse ON outbox_events")
			if settled, err := s.Settle(t.Context(), owner, lanes, refusal.Outcomes); err != nil || settled.Delivered != 20 {
				t.Errorf("when it may, it settled %+v, error %v", settled, err)
			}
		})
	}
}

// A mark that the row does not take becomes its error, with what was served: when it is claimed
// again none of it is published.
func TestRefusedMarkIsNoted(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
	exec(t, pool,
		`ALTER TABLE outbox_events ADD CONSTRAINT never_sent CHECK (status <> 'SENT' OR aggregate_id <> 'never')`)
	writeOrders(t, pool, 1, "a", "never")
	settled, refusal := settleAll(t, s, owner, lanes)
	if settled.Delivered != 1 || settled.Retried != 1 || refusal != nil {
		t.Fatalf("settled %+v, %v, want one delivered and one that waits", settled, refusal)
	}
	exec(t, pool, "UPDATE outbox_events SET next_retry_at = now() WHERE status = 'FAILED'")
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 1 || len(records[0].DeliveredTo) != 1 || records[0].DeliveredTo[0] != "x" {
		t.Errorf("claimed %d, error %v, want the one, delivered to x", len(records), err)
	}
}

// A conflict with another transaction is over in a moment: the row does not wait for somebody to
// act.
func TestConflictIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	for _, conflict := range []string{"serialization_failure", "deadlock_detected", "lock_not_available"} {
		t.Run(conflict, func(t *testing.T) {
			t.Parallel()
			pool := migrated(t)
			s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
			exec(t, pool, `CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE `+conflict+`; END $$`)
			exec(t, pool, `CREATE TRIGGER conflict BEFORE UPDATE ON outbox_events FOR EACH ROW
				WHEN (NEW.status = 'SENT' AND NEW.aggregate_id = 'never') EXECUTE FUNCTION conflict()`)
			writeOrders(t, pool, 1, "a", "never")
			settled, refusal := settleAll(t, s, owner, lanes)
			if settled != (outbox.Settled{Delivered: 1}) || refusal == nil || len(refusal.Outcomes) != 1 {
				t.Fatalf("settled %+v, %v, want one delivered and one refused", settled, refusal)
			}
			if n := query[int](t, pool, "SELECT count(*) FROM outbox_events WHERE next_retry_at IS NOT NULL"); n != 0 {
				t.Error("the row waits")
			}
			exec(t, pool, "DROP TRIGGER conflict ON outbox_events")
			if settled, err := s.Settle(t.Context(), owner, lanes, refusal.Outcomes); err != nil || settled.Delivered != 1 {
				t.Errorf("when it is over: settled %+v, error %v", settled, err)
			}
		})
	}
}

// What refuses a mark may end between that and the note of it. The note is kept then, and the row
// is not taken for one that somebody holds locked: it would be noted again, and wait, for ever.
func TestRefusedMarkIsNotedOnce(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
	exec(t, pool, `ALTER TABLE outbox_events ADD CONSTRAINT never_sent CHECK (status <> 'SENT')`)
	writeOrders(t, pool, 1, "a")
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 1 {
		t.Fatalf("claimed %d, error %v", len(records), err)
	}
	settled, err := s.Settle(t.Context(), owner, lanes, []outbox.Outcome{
		{Record: records[0], State: outbox.Delivered, DeliveredTo: []string{"x"}, Refused: 3},
	})
	if err != nil || settled != (outbox.Settled{Retried: 1}) {
		t.Errorf("settled %+v, error %v, want one that waits and none refused", settled, err)
	}
}

// hold runs a statement in a transaction of another session, and returns what ends it.
func hold(t *testing.T, pool *pgxpool.Pool, sql string) (release func()) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), "BEGIN; "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	}
}

// Rows that somebody holds locked are left, and told of; nothing waits for them but the first
// settle, for as long as lock_timeout.
func TestSettlePassesOverLockedRows(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"UPDATE outbox_events SET source_bc = 'edited' WHERE aggregate_id = 'locked'",
		"SELECT FROM outbox_events WHERE aggregate_id = 'locked' FOR SHARE"} {
		t.Run(lock[:6], func(t *testing.T) {
			t.Parallel()
			pool := migrated(t)
			s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
			writeOrders(t, pool, 20, "a", "locked", "b")
			release := hold(t, pool, lock)
			settled, refusal := settleAll(t, s, owner, lanes)
			if settled.Delivered != 40 || settled.Lost != 0 || refusal == nil || len(refusal.Outcomes) != 20 {
				t.Fatalf("settled %+v, %v, want 40 settled and 20 refused", settled, refusal)
			}
			for i := range refusal.Outcomes {
				if refusal.Outcomes[i].Record.AggregateID != "locked" {
					t.Errorf("refused an event of %s", refusal.Outcomes[i].Record.AggregateID)
				}
				refusal.Outcomes[i].Refused++
			}
			settled, err := s.Settle(t.Context(), owner, lanes, refusal.Outcomes)
			var again *outbox.RefusedError
			if !errors.As(err, &again) || len(again.Outcomes) != 20 || settled != (outbox.Settled{}) {
				t.Errorf("while they are locked: settled %+v, error %v", settled, err)
			}
			release()
			if settled, err := s.Settle(t.Context(), owner, lanes, refusal.Outcomes); err != nil || settled.Delivered != 20 {
				t.Errorf("afterwards: settled %+v, error %v", settled, err)
			}
		})
	}
}

// What is behind a refused row in its key is refused with it: a relay that dies then has both go
// out again, in their order. Other keys are settled.
func TestRefusedRowsHoldTheirKeys(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(t *testing.T, pool *pgxpool.Pool) (release func()){
		"lock": func(t *testing.T, pool *pgxpool.Pool) func() {
			return hold(t, pool, "SELECT FROM outbox_events WHERE position = 3 FOR UPDATE")
		},
		"trigger": func(t *testing.T, pool *pgxpool.Pool) func() {
			exec(t, pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
				CREATE TRIGGER refuse BEFORE UPDATE ON outbox_events FOR EACH ROW WHEN (OLD.position = 3) EXECUTE FUNCTION refuse()`)
			return func() { exec(t, pool, "DROP TRIGGER refuse ON outbox_events") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := migrated(t)
			s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
			writeOrders(t, pool, 4, "a", "b")
			release := refuse(t, pool)
			settled, refusal := settleAll(t, s, owner, lanes)
			var left []int64
			if refusal != nil {
				for _, o := range refusal.Outcomes {
					left = append(left, o.Record.Position)
				}
			}
			if !slices.Equal(left, []int64{3, 5, 7}) || settled != (outbox.Settled{Delivered: 5}) {
				t.Errorf("settled %+v, refused %v, %v", settled, left, refusal)
			}
			release()
			if settled, err := s.Settle(t.Context(), owner, lanes, refusal.Outcomes); err != nil || settled.Delivered != 3 {
				t.Errorf("afterwards: settled %+v, error %v", settled, err)
			}
		})
	}
}

// Who locks the lanes' rows keeps nobody from renewing, and nobody takes them from a relay that is
// alive.
func TestLeaseWhileTheLanesAreLocked(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := migrated(t)
	s, owner, _ := serving(t, pool, outbox.OutboxEvents())
	const ttl = 2 * time.Second
	lease(t, s, owner, ttl) // the clock looks as if it had been set back, and all leases end in two seconds
	release := hold(t, pool, "SELECT FROM outbox_lanes FOR UPDATE")
	for began := time.Now(); time.Since(began) < 2*ttl; time.Sleep(ttl / 6) {
		leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: ttl})
		if err != nil || len(leased.Lanes) != outbox.LaneCount || leased.Remaining <= ttl/3 {
			t.Fatalf("got %d lanes for %s, error %v", len(leased.Lanes), leased.Remaining, err)
		}
	}
	release()
	if lanes := lease(t, s, uuid.New(), ttl); len(lanes) != 0 {
		t.Errorf("another relay took %d lanes of one that is alive", len(lanes))
	}
}

// After a server's start lapsed lanes wait for their holder, for one lease; a relay that comes back
// from an outage takes none either.
func TestHolderComesFirstAfterAnOutage(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := testenv.PostgresServer(t, testenv.PostgresConfig{})
	url := server.URL("postgres")
	if err := pgmigrations.Up(t.Context(), url, pgmigrations.Sets...); err != nil {
		t.Fatal(err)
	}
	pool, err := connect(t.Context(), url, Config{Conns: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, owner, _ := serving(t, pool, outbox.OutboxEvents())
	vanish(t, pool)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	other := uuid.New()
	ask := func(owner uuid.UUID, ttl time.Duration, returning bool) int {
		t.Helper()
		leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: ttl, Returning: returning})
		if err != nil {
			t.Fatal(err)
		}
		return len(leased.Lanes)
	}
	if n := ask(other, time.Hour, false); n != 0 {
		t.Errorf("another relay took %d lanes right after the server's start", n)
	}
	if n := ask(owner, time.Hour, true); n != outbox.LaneCount {
		t.Errorf("the holder got %d lanes back", n)
	}
	vanish(t, pool)
	time.Sleep(50 * time.Millisecond)
	if n := ask(other, 20*time.Millisecond, true); n != 0 {
		t.Errorf("a relay that comes back from an outage took %d lapsed lanes", n)
	}
	time.Sleep(50 * time.Millisecond)
	if n := ask(other, 20*time.Millisecond, false); n != outbox.LaneCount {
		t.Errorf("a relay got %d of the lanes that nobody came for", n)
	}
}

// Two names of a table are one table; a table of that name in another database is another one, also
// in a copy.
func TestNamesOfOneTable(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
	layout := outbox.OutboxEvents()
	layout.Table = "public.outbox_events"
	qualified, err := openTable(t.Context(), pool, layout)
	if err != nil {
		t.Fatal(err)
	}
	if got := lease(t, qualified, owner, time.Minute); len(got) != len(lanes) || got[0].Epoch != lanes[0].Epoch {
		t.Errorf("under its other name the holder has %d lanes", len(got))
	}
	if n := query[int](t, pool, "SELECT count(DISTINCT table_name) FROM outbox_lanes"); n != 1 {
		t.Errorf("the table has %d sets of leases", n)
	}
	if s.origin == 0 || s.origin != qualified.origin {
		t.Errorf("origins %x and %x of one table", s.origin, qualified.origin)
	}
	crawl, _, _ := serving(t, pool, outbox.CrawlOutbox())
	elsewhere, _, _ := serving(t, migrated(t), outbox.OutboxEvents())
	if crawl.origin == s.origin || elsewhere.origin == s.origin {
		t.Error("another table, or another database, has the same origin")
	}
}
