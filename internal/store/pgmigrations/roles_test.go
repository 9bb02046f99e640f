package pgmigrations_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// verbs are what one can do to each table; %s is an application's id.
var verbs = map[string]map[string]string{
	"outbox_events": {
		"SELECT": "SELECT payload FROM outbox_events",
		"INSERT": "INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES ('t', now(), 'bc', " +
			"'{}') ON CONFLICT (id) DO NOTHING RETURNING id, position",
		"FORGE": "INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, status) " +
			"VALUES ('t', now(), 'bc', '{}', 'SENT')",
		"UPDATE": "UPDATE outbox_events SET payload = '{}'",
		"SETTLE": "UPDATE outbox_events SET status = 'SENT', processed_at = now(), retry_count = 1, next_retry_at = NULL, " +
			"error_message = NULL, error_history = NULL, delivered_to = NULL WHERE position = 1",
		"REVIVE": "UPDATE outbox_events SET payload = '{}', status = 'NEW', processed_at = NULL, retry_count = 0, " +
			"next_retry_at = NULL, delivered_to = NULL, generation = 1",
		"DELETE": "DELETE FROM outbox_events",
	},
	"event_outbox": {
		"SELECT": "SELECT payload FROM event_outbox",
		"INSERT": "INSERT INTO event_outbox (app_id, event_id, event_type, payload) VALUES ('%s', gen_random_uuid(), 't', " +
			"'{}') ON CONFLICT (event_id) DO NOTHING RETURNING id, event_id",
		"FORGE": "INSERT INTO event_outbox (app_id, event_id, event_type, payload, position) VALUES ('%s', " +
			"gen_random_uuid(), 't', '{}', -1)",
		"UPDATE": "UPDATE event_outbox SET payload = '{}'",
		"SETTLE": "UPDATE event_outbox SET status = 'published', published_at = now(), retry_count = 1, next_retry_at = " +
			"NULL, error_message = NULL, error_history = NULL, delivered_to = NULL WHERE position = 1",
		"REVIVE": "UPDATE event_outbox SET payload = '{}', status = 'pending', published_at = NULL, retry_count = 0, " +
			"next_retry_at = NULL, delivered_to = NULL, generation = 1",
		"DELETE": "DELETE FROM event_outbox",
	},
	"outbox_deliveries": {
		"SELECT": "SELECT payload FROM outbox_deliveries",
		"INSERT": "INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, payload, " +
			"written_at) VALUES ('outbox_events', 's', 0, gen_random_uuid(), '[\"d\"]', 't', '{}', now()) " +
			"ON CONFLICT DO NOTHING",
		"UPDATE": "UPDATE outbox_deliveries SET payload = '{}'",
		"SETTLE": "UPDATE outbox_deliveries SET status = 'delivered', delivered_at = now(), attempts = 1, next_retry_at = " +
			"NULL, last_error = NULL, error_history = NULL WHERE position = 1",
		"REVIVE": "UPDATE outbox_deliveries SET payload = '{}', status = 'pending', delivered_at = NULL, attempts = 0, " +
			"next_retry_at = NULL, generation = 1",
		"DELETE": "DELETE FROM outbox_deliveries",
	},
	"crawl_outbox": {
		"SELECT": "SELECT payload FROM crawl_outbox",
		"INSERT": "INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT id, 't', '{}' FROM crawl_runs RETURNING " +
			"id, event_id, seq",
		"FORGE": "INSERT INTO crawl_outbox (crawl_id, event_type, payload, generation) " +
			"SELECT id, 't', '{}', 9 FROM crawl_runs",
		"UPDATE": "UPDATE crawl_outbox SET payload = '{}'",
		"SETTLE": "UPDATE crawl_outbox SET published_at = now(), retry_count = 1, next_retry_at = NULL, error_message = " +
			"NULL, error_history = NULL, delivered_to = NULL WHERE id = 1",
		"DELETE": "DELETE FROM crawl_outbox",
	},
	"crawl_events": {
		"SELECT": "SELECT payload FROM crawl_events",
		"INSERT": "INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT id, 't', '{}' FROM crawl_runs " +
			"RETURNING id, seq",
		"UPDATE": "UPDATE crawl_events SET payload = '{}'",
		"DELETE": "DELETE FROM crawl_events",
	},
	"crawl_runs": {
		"SELECT": "SELECT * FROM crawl_runs",
		"INSERT": "INSERT INTO crawl_runs (app_package) VALUES ('p')",
		"UPDATE": "UPDATE crawl_runs SET created_at = now()",
		"DELETE": "DELETE FROM crawl_runs",
	},
	"job_dlq": {
		"SELECT": "SELECT payload FROM job_dlq",
		"INSERT": "INSERT INTO job_dlq (source, original_job_id, app_id, type, payload, error_reason, attempts, " +
			"error_history) VALUES ('event', gen_random_uuid(), '%s', 't', '{}', 'DeliveryFailed', 1, '[]')",
		"UPDATE": "UPDATE job_dlq SET payload = '{}'",
		"DECIDE": "UPDATE job_dlq SET replayed_at = now(), discarded_at = now(), discard_reason = 'r'",
		"DELETE": "DELETE FROM job_dlq",
	},
	"outbox_audit": {
		"SELECT": "SELECT * FROM outbox_audit",
		"INSERT": "INSERT INTO outbox_audit (actor, action, letters) VALUES ('a', 'replay', 1)",
		"FORGE": "INSERT INTO outbox_audit (actor, action, letters, at) " +
			"VALUES ('a', 'replay', 1, now() - interval '1 year')",
		"DISOWN": "INSERT INTO outbox_audit (actor, action, letters, db_user) VALUES ('a', 'replay', 1, 'b')",
		"UPDATE": "UPDATE outbox_audit SET actor = 'b'",
		"DELETE": "DELETE FROM outbox_audit",
	},
	"apps": {
		"SELECT": "SELECT * FROM apps",
		"INSERT": "INSERT INTO apps (name, namespace) VALUES ('n', 'n') ON CONFLICT DO NOTHING",
		"UPDATE": "UPDATE apps SET name = 'n'",
		"DELETE": "DELETE FROM apps WHERE namespace = 'n'",
	},
	"outbox_lanes": {
		"SELECT": "SELECT * FROM outbox_lanes FOR UPDATE",
		"INSERT": "INSERT INTO outbox_lanes (table_name, lane) VALUES ('t', 1)",
		"UPDATE": "UPDATE outbox_lanes SET epoch = 2",
		"DELETE": "DELETE FROM outbox_lanes",
	},
	"outbox_maintenance": {
		"SELECT": "SELECT * FROM outbox_maintenance",
		"INSERT": "INSERT INTO outbox_maintenance (table_name) VALUES ('t') ON CONFLICT (table_name) DO UPDATE SET owner = " +
			"NULL RETURNING swept_at",
		"DELETE": "DELETE FROM outbox_maintenance",
	},
	"outbox_archive": {
		"SELECT": "SELECT * FROM outbox_archive",
		"INSERT": "INSERT INTO outbox_archive (table_name, id, position, row) VALUES ('t', gen_random_uuid(), 1, '{}') ON " +
			"CONFLICT DO NOTHING",
		"UPDATE": "UPDATE outbox_archive SET row = '{}'",
		"DELETE": "DELETE FROM outbox_archive",
	},
	"outbox_tokens": {
		"SELECT": "SELECT sha256 FROM outbox_tokens",
		"INSERT": "INSERT INTO outbox_tokens (id, tenant_id, scopes, sha256) VALUES ('aaaaaaaaaaab', 't', '{read}', " +
			"sha256(''))",
		"UPDATE": "UPDATE outbox_tokens SET revoked_at = NULL",
		"DELETE": "DELETE FROM outbox_tokens",
	},
	"outbox_tickets": {
		"SELECT": "SELECT * FROM outbox_tickets FOR UPDATE SKIP LOCKED",
		"INSERT": "INSERT INTO outbox_tickets (sha256, token_id, scopes, expires_at) VALUES (sha256(''), 'aaaaaaaaaaaa', " +
			"'{read}', now())",
		"UPDATE": "UPDATE outbox_tickets SET expires_at = now()",
		"DELETE": "DELETE FROM outbox_tickets",
	},
	"outbox_migrations_core": {
		"SELECT": "SELECT version FROM outbox_migrations_core",
		"UPDATE": "UPDATE outbox_migrations_core SET version = 1",
		"DELETE": "DELETE FROM outbox_migrations_core",
	},
	"outbox_inbox_0": {
		"SELECT":   "SELECT * FROM outbox_inbox_0",
		"REMEMBER": "SELECT * FROM outbox_once('{01900000-0000-7000-8000-000000000001}', NULL, '{1 day}')",
		"TRUNCATE": "TRUNCATE outbox_inbox_0",
		"DELETE":   "DELETE FROM outbox_inbox_0",
	},
	"outbox_inbox_claims": {
		"SELECT": "SELECT * FROM outbox_inbox_claims",
		"DELETE": "DELETE FROM outbox_inbox_claims",
	},
	"run_outbox": {
		"SELECT": "SELECT * FROM run_outbox",
		"SETTLE": "UPDATE run_outbox SET published_at = now() WHERE id = 1",
		"UPDATE": "UPDATE run_outbox SET payload = '{}'",
		"DELETE": "DELETE FROM run_outbox",
	},
}

// allowed is roles.sql said once more. Everything else that verbs lists is refused.
var allowed = map[string][]string{
	// A SELECT shows producers their own last row: TestProducersInsertAsTheSeedsDo.
	"outbox_producer": {"outbox_events INSERT", "event_outbox INSERT", "outbox_events SELECT", "event_outbox SELECT"},
	"outbox_run_producer": {"crawl_outbox INSERT", "crawl_events INSERT", "crawl_runs INSERT", "crawl_runs SELECT",
		"crawl_outbox SELECT"},
	"outbox_relay": {
		"outbox_events SELECT", "outbox_events SETTLE", "outbox_events DELETE",
		"event_outbox SELECT", "event_outbox SETTLE", "event_outbox DELETE",
		"crawl_outbox SELECT", "crawl_outbox SETTLE", "crawl_outbox DELETE",
		"outbox_deliveries SELECT", "outbox_deliveries INSERT", "outbox_deliveries SETTLE", "outbox_deliveries DELETE",
		"run_outbox SELECT", "run_outbox SETTLE",
		"job_dlq SELECT", "job_dlq INSERT", "job_dlq DELETE",
		"apps SELECT", "apps INSERT",
		"outbox_lanes SELECT", "outbox_lanes INSERT", "outbox_lanes UPDATE", "outbox_lanes DELETE",
		"outbox_maintenance SELECT", "outbox_maintenance INSERT", "outbox_archive INSERT", "outbox_audit INSERT",
		"outbox_migrations_core SELECT",
	},
	"outbox_operator": {
		"outbox_events SELECT", "outbox_events INSERT", "outbox_events FORGE", "outbox_events UPDATE", "outbox_events SETTLE",
		"outbox_events REVIVE", "outbox_archive SELECT",
		"event_outbox SELECT", "event_outbox UPDATE", "event_outbox SETTLE", "event_outbox REVIVE",
		"outbox_deliveries SELECT", "outbox_deliveries UPDATE", "outbox_deliveries SETTLE", "outbox_deliveries REVIVE",
		// And INSERT, though not for runs it has to look up, as the statement here: see
		// TestOperatorRole beside the store.
		"crawl_outbox SELECT",
		"crawl_outbox DELETE",
		"job_dlq SELECT", "job_dlq INSERT", "job_dlq DECIDE", "job_dlq DELETE",
		"outbox_audit SELECT", "outbox_audit INSERT", "apps SELECT", "apps INSERT",
		"outbox_maintenance SELECT", "outbox_migrations_core SELECT",
	},
	"outbox_gateway": {
		"outbox_tokens SELECT", "outbox_tickets SELECT", "outbox_tickets INSERT", "outbox_tickets DELETE",
		// And crawl_outbox INSERT, but not what is returned here.
		"crawl_runs SELECT", "crawl_runs INSERT", "crawl_events SELECT", "crawl_events INSERT",
		// Letters of subscriptions, and the application of a tenant's first.
		"job_dlq INSERT", "apps INSERT",
	},
	"outbox_consumer": {
		"outbox_inbox_0 SELECT", "outbox_inbox_0 REMEMBER", "outbox_inbox_0 TRUNCATE", "outbox_inbox_claims SELECT",
		"outbox_inbox_claims DELETE", "job_dlq INSERT", "apps INSERT",
	},
	"outbox_worker": {"crawl_runs SELECT", "crawl_events SELECT", "crawl_events INSERT"}, // the same
	"outbox_reader": {
		"outbox_audit SELECT", "outbox_events SELECT", "event_outbox SELECT", "crawl_outbox SELECT", "crawl_events SELECT",
		"crawl_runs SELECT", "job_dlq SELECT",
		"outbox_maintenance SELECT",
		"apps SELECT", "run_outbox SELECT", "outbox_migrations_core SELECT",
	},
}

func TestEachRoleMayDoItsOwnAndNothingElse(t *testing.T) {
	t.Parallel()
	url, super := database(t)
	// PostgreSQL 14 lets everybody make tables in schema public: docs/operations/running.md says
	// so.
	run(t, super, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	app := one[string](t, super, "SELECT id::text FROM apps")
	_ = newRun(t, super)
	// For tickets to refer to.
	run(t, super,
		"INSERT INTO outbox_tokens (id, tenant_id, scopes, sha256) VALUES ('aaaaaaaaaaaa', 't', '{read}', sha256(''))")
	for range 2 { // the second time changes nothing
		if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
	for role, may := range allowed {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, url)
			run(t, conn, "SET ROLE "+role)
			run(t, conn, "SELECT set_config('app.current_tenant', $1, false)", app)
			if role == "outbox_gateway" {
				run(t, conn, "SELECT set_config('app.current_namespace', 'default', false)")
			}
			if role == "outbox_relay" || role == "outbox_operator" { // for every tenant, without naming one
				run(t, conn, "RESET app.current_tenant")
			}
			for table, byVerb := range verbs {
				for verb, sql := range byVerb {
					sql = strings.ReplaceAll(sql, "%s", app)
					if !slices.Contains(may, table+" "+verb) {
						refused(t, conn, "42501", sql)
						continue
					}
					tx, err := conn.Begin(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if _, err := tx.Exec(t.Context(), sql); err != nil {
						t.Errorf("%s on %s: %v", verb, table, err)
					}
					if err := tx.Rollback(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, table := range []string{"outbox_events", "event_outbox", "job_dlq", "crawl_outbox"} {
				refused(t, conn, "42501", "TRUNCATE "+table)
				refused(t, conn, "42501", "ALTER TABLE "+table+" ADD COLUMN x INT")
			}
			refused(t, conn, "42501", "CREATE TABLE x ()")
		})
	}
}

// A relay delivers and buries for all tenants, by a policy of its role and not by BYPASSRLS.
func TestRelayServesEveryTenantReaderOnlyItsOwn(t *testing.T) {
	t.Parallel()
	url, super := database(t)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	a, b := tenants(t, super)
	run(t, super, insertBusEvent, a)
	run(t, super, insertBusEvent, b)

	relay := connect(t, url)
	run(t, relay, "SET ROLE outbox_relay")
	if tag, err := relay.Exec(t.Context(), "UPDATE event_outbox SET status = 'failed'"); err != nil ||
		tag.RowsAffected() != 2 {
		t.Errorf("the relay settles %v, %v, want both", tag, err)
	}
	run(t, relay, insertDead, a)
	run(t, relay, insertDead, b)
	if bypass := one[bool](t, super,
		"SELECT bool_or(rolbypassrls OR rolcanlogin OR rolsuper OR rolcreaterole) FROM pg_roles WHERE rolname LIKE "+
			"'outbox\\_%'"); bypass {
		t.Error("a role may log in, bypass row security or is powerful")
	}

	reader := connect(t, url)
	run(t, reader, "SET ROLE outbox_reader")
	for table := range map[string]bool{"event_outbox": true, "job_dlq": true} {
		for tenant, want := range map[string]int{"": 0, a: 1} {
			run(t, reader, "SELECT set_config('app.current_tenant', $1, false)", tenant)
			if n := one[int](t, reader, "SELECT count(*) FROM "+table); n != want {
				t.Errorf("as tenant %q the reader sees %d rows of %s, want %d", tenant, n, table, want)
			}
		}
	}
}

// A producer who really logs in, over one connection that a pool hands from one tenant to the next.
func TestPooledProducerConnection(t *testing.T) {
	t.Parallel()
	url, super := database(t)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	a, b := tenants(t, super)
	login := "shop_" + one[string](t, super, "SELECT current_database()")
	run(t, super, "CREATE ROLE "+login+" LOGIN IN ROLE outbox_producer")
	conn := connect(t, strings.Replace(url, "postgres://postgres@", "postgres://"+login+"@", 1))

	refused(t, conn, "42501", insertBusEvent, a) // no tenant
	for _, tenant := range []string{a, b} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			run(t, tx, "SELECT set_config('app.current_tenant', $1, true)", tenant)
			run(t, tx, insertBusEvent, tenant)
			refused(t, tx, "42501", insertBusEvent, map[string]string{a: b, b: a}[tenant]) // forged
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		refused(t, conn, "42501", insertBusEvent, tenant) // the tenant went with its transaction
	}
	if n := one[int](t, super, "SELECT count(DISTINCT app_id) FROM event_outbox"); n != 2 {
		t.Errorf("events of %d tenants, want 2", n)
	}
}

func TestRolesTouchOnlyTablesThatExist(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	conn := connect(t, url)
	for i, sets := range [][]string{nil, {"core"}, {"crawl"}, {"events"}} {
		if len(sets) > 0 {
			up(t, ownerOf(t, conn, url), sets...)
		}
		if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	if strangers := query[string](t, conn,
		"SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' AND tableowner <> "+
			"'outbox_owner'"); len(strangers) > 0 {
		t.Errorf("not handed over: %v", strangers)
	}
}

// What somebody granted by hand does not survive.
func TestRolesRevokeWhatTheyDoNotGrant(t *testing.T) {
	t.Parallel()
	url, super := database(t)
	run(t, super, "CREATE TABLE unrelated ()")
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	run(t, super,
		"GRANT DELETE ON outbox_events TO outbox_producer; GRANT SELECT (payload) ON job_dlq TO outbox_producer; "+
			"GRANT SELECT ON unrelated TO outbox_producer")
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	run(t, conn, "SET ROLE outbox_producer")
	refused(t, conn, "42501", "DELETE FROM outbox_events")
	refused(t, conn, "42501", "SELECT payload FROM job_dlq")
	run(t, conn, "SELECT FROM unrelated") // not ours: left alone
}

// An installation of the version before gave its producers the rights of whoever drives runs.
func TestRolesTakeRunsFromProducers(t *testing.T) {
	t.Parallel()
	url, super := database(t)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	id := newRun(t, super)
	run(t, super, `GRANT INSERT, SELECT (id, event_id, seq) ON crawl_outbox TO outbox_producer;
		GRANT INSERT, SELECT (id, crawl_id, seq, event_type, event_id) ON crawl_events TO outbox_producer;
		GRANT INSERT, SELECT, UPDATE (status) ON crawl_runs TO outbox_producer;
		GRANT USAGE ON SEQUENCE crawl_outbox_id_seq, crawl_events_id_seq TO outbox_producer`)
	for _, table := range []string{"crawl_runs", "crawl_events", "crawl_outbox"} {
		run(t, super, fmt.Sprintf("CREATE POLICY %[1]s_producer ON %[1]s TO outbox_producer USING (true) WITH CHECK (true)",
			table))
	}
	conn := connect(t, url)
	run(t, conn, "SET ROLE outbox_producer")
	run(t, conn, "UPDATE crawl_runs SET status = 'RUNNING'")
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"SELECT goal FROM crawl_runs", "SELECT id FROM crawl_runs", "UPDATE crawl_runs SET status = 'CANCELLED'",
		"INSERT INTO crawl_runs (app_package) VALUES ('p')",
		"INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ('" + id + "', 't', '{}')",
		"SELECT nextval('crawl_events_id_seq')", "SELECT id FROM crawl_outbox",
	} {
		refused(t, conn, "42501", sql)
	}
	const permissive = "SELECT count(*) FROM pg_policies " +
		"WHERE 'outbox_producer' = ANY (roles) AND permissive = 'PERMISSIVE'"
	if left := one[int](t, super, permissive); left != 0 {
		t.Errorf("%d policies are left for outbox_producer", left)
	}
	run(t, conn, verbs["outbox_events"]["INSERT"])
}

// Whoever is granted the view sees of it what he sees of its table, and purges are not for
// everybody.
func TestRolesLeaveNoWayAround(t *testing.T) {
	t.Parallel()
	url, super := database(t)
	id := newRun(t, super)
	run(t, super, "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 't', '{}')", id)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	login := "viewer_" + one[string](t, super, "SELECT current_database()")
	run(t, super, fmt.Sprintf("CREATE ROLE %[1]s; GRANT SELECT ON run_outbox, crawl_outbox TO %[1]s", login))
	conn := connect(t, url)
	run(t, conn, "SET ROLE "+login)
	if n := one[int](t, conn, "SELECT count(*) FROM run_outbox"); n != 0 &&
		one[int](t, super, "SELECT current_setting('server_version_num')::int") >= 150000 {
		t.Errorf("through the view a role sees %d rows that row-level security hides from it in the table", n)
	}
	refused(t, conn, "42501", "SELECT purge_job_dlq()")
	refused(t, conn, "42501", "SELECT purge_event_outbox()")
	run(t, conn, "RESET ROLE; SET ROLE outbox_operator")
	run(t, conn, "SELECT purge_job_dlq()")
	run(t, conn, "RESET ROLE; SET ROLE outbox_relay")
	run(t, conn, "SELECT purge_job_dlq(), purge_event_outbox()")
}

func TestRolesFromManyDatabasesAtOnce(t *testing.T) {
	t.Parallel()
	var group sync.WaitGroup
	for range 4 {
		url := testenv.Database(t)
		group.Go(func() {
			for range 3 {
				if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// The tables' owner need not be a superuser.
func TestRolesAppliedByTheTablesOwner(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	super := connect(t, url)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil { // the roles exist, made by somebody else
		t.Fatal(err)
	}
	name := one[string](t, super, "SELECT current_database()")
	login := "owner_" + name
	run(t, super,
		fmt.Sprintf("CREATE ROLE %[1]s LOGIN CREATEROLE; GRANT outbox_owner TO %[1]s WITH ADMIN OPTION; ALTER DATABASE "+
			"%[2]s OWNER TO %[1]s", login, name))
	own := strings.Replace(url, "postgres://postgres@", "postgres://"+login+"@", 1)
	up(t, own)
	if err := pgmigrations.ApplyRoles(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if err := pgmigrations.Down(t.Context(), own, pgmigrations.All, "crawl"); err != nil {
		t.Fatal(err)
	}
	up(t, own)
}

func TestPrintRolesIsWhatIsApplied(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	if err := pgmigrations.PrintRoles(&printed); err != nil {
		t.Fatal(err)
	}
	_, conn := database(t)
	run(t, conn, printed.String())
	run(t, conn, "SET ROLE outbox_reader")
	_ = one[int](t, conn, "SELECT count(*) FROM outbox_events")
	refused(t, conn, "42501", "DELETE FROM outbox_events")
}

// The tables of FR-005 have their sequences under crawl's names afterwards, or nobody would be
// granted them.
func TestRolesOfRenamedTables(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url := testenv.Database(t)
	conn := connect(t, url)
	ddl, err := os.ReadFile("testdata/fr005.sql")
	if err != nil {
		t.Fatal(err)
	}
	run(t, conn, string(ddl))
	const run1 = "00000000-0000-7000-8000-000000000001"
	run(t, conn, "INSERT INTO runs (id, app_package) VALUES ('"+run1+"', 'com.example')")
	up(t, url)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	run(t, conn, "SET ROLE outbox_run_producer")
	run(t, conn, "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ('"+run1+"', 'PROCESSING', '{}')")
	run(t, conn, "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('"+run1+"', 'PROCESSING', '{}')")
}
