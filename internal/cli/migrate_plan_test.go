package cli_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/testenv"
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

// A set that only who wants it applies is listed by what applies it and takes it away, and by status while it is there.
func TestMigrateOptionalSet(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: testenv.Database(t)}
	contains(t, e.ok("", "migrate", "up"), "core ")
	if out := e.ok("", "migrate", "status"); strings.Contains(out, "log ") {
		t.Errorf("status lists a set that nobody has asked for:\n%s", out)
	}
	contains(t, e.ok("", "migrate", "up", "--set", "log"), "log ", "001_outbox_log")
	contains(t, e.ok("", "migrate", "up"), "(nothing)")
	contains(t, e.ok("", "migrate", "status"), "log ", "up to date")
	contains(t, e.ok("", "migrate", "down", "--set", "log", "--all"), "log ", "001_outbox_log")
	if out := e.ok("", "migrate", "status"); strings.Contains(out, "log ") {
		t.Errorf("status lists a set that is gone:\n%s", out)
	}
}

// The commands write into a log, and say how far its relays are behind.
func TestWriteIntoALog(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: testenv.Database(t)}
	e.ok("", "migrate", "up", "--set", "core,log")
	e.ok(`{"total": 12}`, "write", "--table", "outbox_log", "--topic", "order.placed", "--key", "42")
	line := `{"id": "018f0000-0000-7000-8000-000000000001", "payload": 1}` + "\n"
	e.ok(line+line, "write", "--table", "outbox_log", "--topic", "order.placed", "--jsonl") // it knows no ids
	contains(t, e.ok("", "lanes", "--table", "outbox_log", "-o", "json"), `"counted": 3`)
	if r := e.run("", "events", "--table", "outbox_log"); r.code != 1 || !strings.Contains(r.err, "--to SINK") {
		t.Errorf("events: exit code %d\n%s%s", r.code, r.out, r.err)
	}
}
