package pgmigrations_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
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

// A role that may make functions in the schema gets no rights of the role that migrates, or of the
// superuser who makes the roles: CVE-2018-1058.
func TestNoStrangersFunctionIsCalled(t *testing.T) {
	t.Parallel()
	for what, shadow := range shadows {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := testenv.Database(t)
			conn := connect(t, url)
			name := "thief_" + one[string](t, conn, "SELECT replace(left(gen_random_uuid()::text, 13), '-', '')")
			thief(t, conn, name)
			owner := ownerOf(t, conn, url)
			commands := map[string]func() error{
				"up":    func() error { return pgmigrations.Up(t.Context(), owner) },
				"roles": func() error { return pgmigrations.ApplyRoles(t.Context(), url) },
				"indexes": func() error {
					_, err := pgmigrations.SwitchIndexes(t.Context(), owner, pgmigrations.LeanIndexes, func(string) {})
					return err
				},
				"down": func() error { return pgmigrations.Down(t.Context(), owner, 1, "crawl") },
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
