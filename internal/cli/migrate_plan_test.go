package cli_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/testenv"
)

// What up will do with a table that an application has is printed, and what it cannot do makes the command fail.
func TestMigratePlan(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: testenv.Database(t)}
	contains(t, e.ok("", "migrate", "up", "--plan"), "no table exists")
	conn, err := pgx.Connect(t.Context(), e.database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(),
		"CREATE TABLE apps (id UUID PRIMARY KEY, name TEXT NOT NULL, namespace TEXT)"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"migrate", "up", "--plan"}, {"migrate", "up"}} {
		if r := e.run("", args...); r.code != 1 || !strings.Contains(r.out+r.err, "column namespace of apps may be NULL") {
			t.Errorf("%s: exit code %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
	if _, err := conn.Exec(t.Context(), "ALTER TABLE apps ALTER COLUMN namespace SET NOT NULL"); err != nil {
		t.Fatal(err)
	}
	contains(t, e.ok("", "migrate", "up", "--plan"), "apps exists: 0 rows", "1. add settings, created_at, updated_at")
	if r := e.run("", "migrate", "up"); r.code != 0 || !strings.Contains(r.err, "apps exists: 0 rows") {
		t.Errorf("up: exit code %d\n%s", r.code, r.err)
	}
}
