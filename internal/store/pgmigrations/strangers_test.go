package pgmigrations_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// thief makes a role that may make functions in public, and a function that makes the role a
// superuser when somebody calls it who is one.
func thief(t *testing.T, conn *pgx.Conn, name string) {
	t.Helper()
	runAll(t, conn, "CREATE ROLE "+name+" LOGIN", "GRANT CREATE ON SCHEMA public TO "+name,
		"CREATE SCHEMA "+name+" AUTHORIZATION "+name,
		"SET ROLE "+name, `CREATE FUNCTION `+name+`.steal() RETURNS void LANGUAGE plpgsql AS $f$ BEGIN
			IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
				EXECUTE 'ALTER ROLE `+name+` SUPERUSER'; END IF; END $f$`, "RESET ROLE")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = conn.Exec(ctx, "DROP OWNED BY "+name+" CASCADE")
		if _, err := conn.Exec(ctx, "DROP ROLE "+name); err != nil {
			t.Error(err)
		}
	})
}

func runAll(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		run(t, conn, sql)
	}
}

// stolen tells whether the role has become a superuser, and takes it back.
func stolen(t *testing.T, conn *pgx.Conn, name string) bool {
	t.Helper()
	return one[bool](t, conn, "SELECT rolsuper FROM pg_roles WHERE rolname = $1", name)
}

// shadow makes a function or an operator of the thief's that fits calls better than PostgreSQL's of
// that name.
var shadows = map[string]string{
	"function format(text,text)": `CREATE FUNCTION public.format(text, text) RETURNS text LANGUAGE plpgsql AS
		$f$ BEGIN PERFORM THIEF.steal(); RETURN pg_catalog.format($1, VARIADIC ARRAY[$2]); END $f$`,
	"function to_regclass(character varying)": `CREATE FUNCTION public.to_regclass(varchar) RETURNS regclass LANGUAGE plpgsql AS
		$f$ BEGIN PERFORM THIEF.steal(); RETURN pg_catalog.to_regclass($1::text); END $f$`,
	"operator =(character varying,character varying)": `CREATE FUNCTION THIEF.same(varchar, varchar) RETURNS boolean LANGUAGE plpgsql AS
		$f$ BEGIN PERFORM THIEF.steal(); RETURN $1::text OPERATOR(pg_catalog.=) $2::text; END $f$;
		CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = THIEF.same)`,
}

// Whoever may make functions in the schema gets no rights of the superuser who migrates:
// CVE-2018-1058.
func TestNoStrangersFunctionIsCalled(t *testing.T) {
	t.Parallel()
	for what, shadow := range shadows {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := testenv.Database(t)
			conn := connect(t, url)
			name := "thief_" + one[string](t, conn, "SELECT replace(left(gen_random_uuid()::text, 13), '-', '')")
			thief(t, conn, name)
			commands := map[string]func() error{
				"up":    func() error { return pgmigrations.Up(t.Context(), url) },
				"roles": func() error { return pgmigrations.ApplyRoles(t.Context(), url) },
				"indexes": func() error {
					_, err := pgmigrations.SwitchIndexes(t.Context(), url, pgmigrations.LeanIndexes, func(string) {})
					return err
				},
				"down": func() error { return pgmigrations.Down(t.Context(), url, 1, "crawl") },
			}
			kind, signature, _ := strings.Cut(what, " ")
			plant := func() { runAll(t, conn, "SET ROLE "+name, strings.ReplaceAll(shadow, "THIEF", name), "RESET ROLE") }
			refused := func(command string) {
				t.Helper()
				err := commands[command]()
				if err == nil || !strings.Contains(err.Error(), kind+" public."+signature+" of role "+name) {
					t.Errorf("%s: %v, want it refused for the %s", command, err, what)
				}
				if stolen(t, conn, name) {
					t.Fatalf("%s has made %s a superuser", command, name)
				}
			}
			plant()
			refused("up")
			runAll(t, conn, fmt.Sprintf("DROP %s public.%s CASCADE", kind, signature),
				"DROP FUNCTION IF EXISTS "+name+".same(varchar, varchar)")
			for _, command := range []string{"up", "roles"} {
				if err := commands[command](); err != nil {
					t.Fatalf("%s: %v", command, err)
				}
			}
			plant()
			for command := range commands {
				refused(command)
			}
			// One that a superuser owns is trusted.
			run(t, conn, fmt.Sprintf("ALTER %s public.%s OWNER TO postgres", kind, signature))
			if err := commands["roles"](); err != nil {
				t.Errorf("a superuser's: %v", err)
			}
		})
	}
}

// A table that is adopted may have triggers, indexes, checks and rules that a lesser role has made.
// A superuser calls none of them, also where they undo SET ROLE or wait for the commit. Their owner
// adopts the table.
func TestAdoptionIsTheTablesOwners(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	ddl, err := os.ReadFile("testdata/adr004.sql")
	if err != nil {
		t.Fatal(err)
	}
	const undo = "CREATE FUNCTION THIEF.undo() RETURNS void LANGUAGE plpgsql AS $f$ BEGIN EXECUTE 'RESET ROLE'; " +
		"EXCEPTION WHEN OTHERS THEN NULL; END $f$;" // CREATE INDEX does not let it
	const function = undo + "CREATE FUNCTION THIEF.fire() RETURNS trigger LANGUAGE plpgsql AS " +
		"$f$ BEGIN PERFORM THIEF.undo(); PERFORM THIEF.steal(); RETURN NEW; END $f$;"
	const key = undo + "CREATE FUNCTION THIEF.key(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS " +
		"$f$ BEGIN PERFORM THIEF.undo(); PERFORM THIEF.steal(); RETURN $1; END $f$;"
	for what, trap := range map[string]string{
		"nothing": "",
		"trigger": function + "CREATE TRIGGER fire BEFORE UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION THIEF.fire()",
		"forced": function + "CREATE TRIGGER fire BEFORE UPDATE ON outbox_events " +
			"FOR EACH ROW EXECUTE FUNCTION THIEF.fire(); ALTER TABLE outbox_events FORCE ROW LEVEL SECURITY",
		"deferred trigger": function + "CREATE CONSTRAINT TRIGGER fire AFTER UPDATE ON outbox_events " +
			"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION THIEF.fire()",
		"index": key + "CREATE INDEX own ON outbox_events (THIEF.key(event_topic))",
		"check": key + "ALTER TABLE outbox_events ADD CONSTRAINT own CHECK (THIEF.key(event_topic) IS NOT NULL)",
		"rule":  key + "CREATE RULE own AS ON UPDATE TO outbox_events DO ALSO SELECT THIEF.key('x')",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := testenv.Database(t)
			conn := connect(t, url)
			name := "thief_" + one[string](t, conn, "SELECT replace(left(gen_random_uuid()::text, 13), '-', '')")
			thief(t, conn, name)
			runAll(t, conn, "SET search_path = public", "SET SESSION AUTHORIZATION "+name, string(ddl),
				`INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
				 SELECT gen_random_uuid(), 'x', now(), 'A', n::text, 's', '{}' FROM generate_series(1, 10) n`)
			if _, err := conn.PgConn().Exec(t.Context(), strings.ReplaceAll(trap, "THIEF", name)).ReadAll(); err != nil {
				t.Fatal(err)
			}
			run(t, conn, "RESET SESSION AUTHORIZATION")
			plan, err := pgmigrations.Plan(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			named := func(n string) bool { return strings.Contains(n, "trigger fire") && strings.Contains(n, name) }
			if strings.Contains(trap, "TRIGGER") != slices.ContainsFunc(plan.Notes, named) {
				t.Errorf("the plan says of triggers: %q", plan.Notes)
			}
			err = pgmigrations.Up(t.Context(), url)
			if stolen(t, conn, name) {
				t.Fatal("adoption has made the table's owner a superuser")
			}
			refused := err != nil && strings.Contains(err.Error(), "would call them as one")
			if err != nil && !refused || refused != (trap != "") {
				t.Fatalf("got %v", err)
			}
			if what != "trigger" {
				return
			}
			database := one[string](t, conn, "SELECT current_database()")
			run(t, conn, fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s", database, name))
			if err := pgmigrations.Up(t.Context(), strings.Replace(url, "postgres@", name+"@", 1), "core"); err != nil {
				t.Errorf("its owner: %v", err)
			}
		})
	}
}
