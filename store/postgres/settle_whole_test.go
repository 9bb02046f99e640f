package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// relayLogin returns the pool of a login that may do what outbox_relay may, and that login's name.
func relayLogin(t *testing.T, admin *pgxpool.Pool) (pool *pgxpool.Pool, login string) {
	t.Helper()
	address := admin.Config().ConnString()
	if err := migrations.ApplyRoles(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	// The administrator of these tests is a superuser, who may only use what superusers own.
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(),
		"REASSIGN OWNED BY outbox_owner TO CURRENT_USER; REVOKE CREATE ON SCHEMA public FROM outbox_owner")
	if err = errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	login = "relay_" + query[string](t, admin, "SELECT current_database()")
	exec(t, admin, "CREATE ROLE "+login+" LOGIN IN ROLE outbox_relay")
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.User(login)
	pool, err = connect(t.Context(), at.String(), Config{Conns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		_, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+login+"; DROP ROLE "+login)
		if err != nil {
			t.Error(err)
		}
	})
	return pool, login
}

// What a role or a database may not do it may do for no row. A settle says so and what ends it, no
// row is made to wait for it, and once it may again all of it is settled.
func TestSettleRefusedAsAWhole(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	unchanged := func(*outbox.Outcome) {}
	dead := func(o *outbox.Outcome) {
		o.State, o.Attempts = outbox.Dead, 1
		o.Failures = []outbox.Failure{{Destination: "x", Reason: outbox.ReasonDeliveryFailed, Error: "refused"}}
	}
	owed := func(o *outbox.Outcome) { o.Owed = []outbox.Owed{{Sink: "x", Destination: "y"}} }
	removing := func(mode outbox.SettleMode) func() outbox.Layout {
		return func() outbox.Layout {
			l := outbox.OutboxEvents()
			l.Settle = mode
			return l
		}
	}
	const fails = `CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE disk_full; END $$;
		CREATE TRIGGER fails BEFORE UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION fails()`
	for _, tt := range []struct {
		name         string
		layout       func() outbox.Layout
		outcome      func(*outbox.Outcome)
		deny, permit string // LOGIN stands for the relay's
		says         string
	}{
		{"mark", outbox.OutboxEvents, unchanged, "REVOKE UPDATE (status) ON outbox_events FROM outbox_relay",
			"GRANT UPDATE (status) ON outbox_events TO outbox_relay", "UPDATE (status"},
		{"delete", removing(outbox.SettleDelete), unchanged, "REVOKE DELETE ON outbox_events FROM outbox_relay",
			"GRANT DELETE ON outbox_events TO outbox_relay", "DELETE"},
		{"archive", removing(outbox.SettleArchive), unchanged, "REVOKE INSERT ON outbox_archive FROM outbox_relay",
			"GRANT INSERT ON outbox_archive TO outbox_relay", "outbox_archive"},
		{"owed", outbox.OutboxEvents, owed, "REVOKE INSERT ON outbox_deliveries FROM outbox_relay",
			"GRANT INSERT ON outbox_deliveries TO outbox_relay", "outbox_deliveries"},
		{"letters", outbox.OutboxEvents, dead, "REVOKE INSERT ON job_dlq FROM outbox_relay",
			"GRANT INSERT ON job_dlq TO outbox_relay", "job_dlq"},
		{"log", outbox.OutboxLog, unchanged, "REVOKE INSERT ON outbox_log_positions FROM outbox_relay",
			"GRANT INSERT ON outbox_log_positions TO outbox_relay", "outbox_log_positions"},
		{"read only", outbox.OutboxEvents, unchanged, "ALTER ROLE LOGIN SET default_transaction_read_only = on",
			"ALTER ROLE LOGIN RESET default_transaction_read_only", "default_transaction_read_only"},
		{"no disk", outbox.OutboxEvents, unchanged, fails, "DROP TRIGGER fails ON outbox_events", "free space"},
		{"no table", removing(outbox.SettleArchive), unchanged, "ALTER TABLE outbox_archive RENAME TO gone",
			"ALTER TABLE gone RENAME TO outbox_archive", "outbox_archive does not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			admin := migrated(t)
			layout := tt.layout()
			if !layout.KeepsState() {
				if err := migrations.Up(t.Context(), admin.Config().ConnString(), "log"); err != nil {
					t.Fatal(err)
				}
			}
			pool, login := relayLogin(t, admin)
			opened, err := served{pool}.OpenTable(t.Context(), layout)
			if err != nil {
				t.Fatal(err)
			}
			owner := outbox.LeaseRequest{Owner: [16]byte{1}, Name: "test", TTL: 1 << 40}
			leased, err := opened.Lease(t.Context(), owner)
			if err != nil {
				t.Fatal(err)
			}
			exec(t, admin, `INSERT INTO `+layout.Table+` (event_topic, occurred_at, source_bc, payload)
				SELECT 'order.placed', now(), 'shop', '{}' FROM generate_series(1, 20)`)
			outcomes := delivered(t, opened, leased.Lanes)
			if len(outcomes) != 20 {
				t.Fatalf("claimed %d", len(outcomes))
			}
			for i := range outcomes {
				tt.outcome(&outcomes[i])
			}
			exec(t, admin, strings.ReplaceAll(tt.deny, "LOGIN", login))
			pool.Reset() // such a setting is one of new sessions
			for range 2 {
				settled, err := opened.Settle(t.Context(), owner.Owner, leased.Lanes, outcomes)
				var refusal *outbox.RefusedError
				if !errors.As(err, &refusal) || !refusal.Whole || len(refusal.Outcomes) > 0 || settled != (outbox.Settled{}) ||
					!strings.Contains(err.Error(), tt.says) {
					t.Fatalf("settled %+v, error %v, want a refusal of the whole that says %s", settled, err, tt.says)
				}
			}
			exec(t, admin, strings.ReplaceAll(tt.permit, "LOGIN", login))
			settled, err := opened.Settle(t.Context(), owner.Owner, leased.Lanes, outcomes)
			if err != nil || settled.Delivered+settled.Dead != 20 {
				t.Errorf("when it may: settled %+v, error %v", settled, err)
			}
		})
	}
}

// Who may not connect is refused no row, and no handler has failed. A settle says why, and once he
// may all of it is settled.
func TestSettleWhileNobodyMayConnect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, deny, permit string }{
		{"login", "ALTER ROLE {login} NOLOGIN", "ALTER ROLE {login} LOGIN"},
		{"right", "REVOKE CONNECT ON DATABASE {database} FROM PUBLIC",
			"GRANT CONNECT ON DATABASE {database} TO PUBLIC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			admin := migrated(t)
			pool, login := relayLogin(t, admin)
			database := query[string](t, admin, "SELECT current_database()")
			named := strings.NewReplacer("{login}", login, "{database}", database)
			s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
			writeOrders(t, admin, 5, "a", "b")
			outcomes := delivered(t, s, lanes)
			exec(t, admin, named.Replace(tt.deny))
			pool.Reset()
			settled, err := s.Settle(t.Context(), owner, lanes, outcomes)
			var refusal *outbox.RefusedError
			if err == nil || errors.As(err, &refusal) || settled != (outbox.Settled{}) {
				t.Fatalf("settled %+v, error %v, want one that refuses nothing", settled, err)
			}
			err = Transactions(pool).Do(t.Context(), func(pgx.Tx) error { return nil })
			if class, _ := outbox.Classify(err); class != outbox.ClassUnavailable {
				t.Errorf("a transaction of a group: %v, want it unavailable, which counts no attempt", err)
			}
			exec(t, admin, named.Replace(tt.permit))
			if settled, err = s.Settle(t.Context(), owner, lanes, outcomes); err != nil || settled.Delivered != 10 {
				t.Errorf("when he may: settled %+v, error %v", settled, err)
			}
		})
	}
}

// What refuses all of several rows may be of the whole, though nobody can tell: none of them is
// made to wait. And what has refused a row may be over when the row is to be told of it.
func TestRowsWaitForNothingThatRefusesAll(t *testing.T) {
	t.Parallel()
	admin := migrated(t)
	layout := outbox.OutboxEvents()
	layout.Settle = outbox.SettleDelete
	s, owner, lanes := serving(t, admin, layout)
	exec(t, admin, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no row changes'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()`)
	writeOrders(t, admin, 5, "a", "b")
	settled, refusal := settleAll(t, s, owner, lanes)
	if refusal == nil || refusal.Whole || len(refusal.Outcomes) != 10 || settled != (outbox.Settled{}) {
		t.Fatalf("settled %+v, %v, want 10 refused", settled, refusal)
	}
	if n := query[int](t, admin, "SELECT count(*) FROM outbox_events WHERE next_retry_at IS NOT NULL"); n > 0 {
		t.Errorf("%d rows wait", n)
	}
	exec(t, admin, `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('tries') < 2 THEN RAISE 'not yet'; END IF; RETURN OLD; END $$; CREATE SEQUENCE tries`)
	settled, err := s.Settle(t.Context(), owner, lanes, refusal.Outcomes[:1])
	if err != nil || settled != (outbox.Settled{Delivered: 1}) {
		t.Errorf("a row whose refusal is over at the second try: settled %+v, error %v", settled, err)
	}
}
