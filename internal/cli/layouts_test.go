package cli_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// columnTypes are the types of a layout's columns, in PostgreSQL and in SQLite. The other keys of a
// layout name texts.
var columnTypes = map[string][2]string{
	"id": {"uuid NOT NULL DEFAULT gen_random_uuid()",
		"TEXT NOT NULL DEFAULT '01900000-0000-7000-8000-000000000001'"},
	"position":   {"bigserial PRIMARY KEY", "INTEGER PRIMARY KEY AUTOINCREMENT"},
	"topic":      {"text DEFAULT 'paid'", "TEXT DEFAULT 'paid'"},
	"payload":    {"jsonb DEFAULT '{}'", "TEXT DEFAULT '{}'"},
	"status":     {"text DEFAULT 'p'", "TEXT DEFAULT 'p'"},
	"attempts":   {"int DEFAULT 0", "INTEGER DEFAULT 0"},
	"generation": {"smallint DEFAULT 0", "INTEGER DEFAULT 0"},
	"sequence":   {"bigint", "INTEGER"}, "schema_version": {"int DEFAULT 1", "INTEGER DEFAULT 1"},
	"destinations": {"jsonb", "TEXT"}, "metadata": {"jsonb", "TEXT"}, "error_history": {"jsonb", "TEXT"},
	"delivered_to": {"jsonb", "TEXT"}, "time_id": {"uuid", "TEXT"},
	"occurred_at": {"timestamptz", "TEXT"}, "written_at": {"timestamptz", "TEXT"},
	"delivered_at": {"timestamptz", "TEXT"}, "next_retry_at": {"timestamptz", "TEXT"},
}

// together are the keys that a layout has only beside another one.
var together = map[string][]string{
	"key": {"key_scope"}, "status": {"pending", "retrying", "delivered", "dead"},
}

// Every key that a layout may leave out can be left out alone: a relay starts and delivers an event
// of the table. The keys are those of outbox.Layout, so a new one is tried as well.
func TestLayoutsWithoutAnyOneOptionalKey(t *testing.T) { onStores(t, testLayoutsWithoutOptionalKeys) }

func testLayoutsWithoutOptionalKeys(t *testing.T, e env) {
	required := []string{"table", "id", "position", "topic", "payload", "attempts", "next_retry_at",
		"pending", "delivered", "dead"} // the last three with status
	values := map[string]string{"pending": "p", "retrying": "r", "delivered": "d", "dead": "x",
		"key_scope": "[c_key_scope]",
		"settle":    "mark", "destination": "'{topic}'", "max_attempts": "3"}
	keys := []string{"destination", "max_attempts"}
	for field := range reflect.TypeFor[outbox.Layout]().Fields() {
		if key := field.Tag.Get("yaml"); key != "-" && key != "app" { // app and tenant exclude each other
			keys = append(keys, key)
		}
	}
	var columns []string
	for _, key := range keys {
		if !slices.Contains([]string{"table", "destination", "max_attempts", "settle"}, key) &&
			!slices.Contains(together["status"], key) {
			types := columnTypes[key]
			columns = append(columns, "c_"+key+" "+e.or(types[0], types[1]))
			if types[0] == "" {
				columns[len(columns)-1] += "text"
			}
		}
	}
	var layouts strings.Builder
	args := []string{"relay", "--listen", "127.0.0.1:0", "--dedup-window", "0", "--layouts",
		filepath.Join(t.TempDir(), "layouts.yaml")}
	var tables []string
	for _, without := range append(keys, "nothing") {
		if slices.Contains(required, without) {
			continue
		}
		table := "without_" + without
		tables = append(tables, table)
		exec1(e, fmt.Sprintf("CREATE TABLE %s (%s)", table, strings.Join(columns, ", ")))
		exec1(e, fmt.Sprintf("INSERT INTO %s DEFAULT VALUES", table))
		fmt.Fprintf(&layouts, "- table: %s\n", table)
		for _, key := range keys[:len(keys):len(keys)] {
			if key == "table" || key == without || slices.Contains(together[without], key) {
				continue
			}
			value := values[key]
			if value == "" {
				value = "c_" + key
			}
			fmt.Fprintf(&layouts, "  %s: %s\n", key, value)
		}
		args = append(args, "--table", table)
	}
	if err := os.WriteFile(args[6], []byte(layouts.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	e.redis = testenv.RedisServer(t).URL()
	e.start(args...)
	for _, table := range tables {
		done := "c_delivered_at IS NOT NULL"
		if table == "without_delivered_at" {
			done = "c_status = 'd'"
		}
		query := fmt.Sprintf("SELECT count(*) FROM %s WHERE %s", table, done)
		e.eventually("the event of "+table+" is delivered", func() bool { return count(e, query) == 1 })
	}
}

func count(e env, query string) (n int) {
	e.t.Helper()
	var err error
	if e.onFile() {
		db := e.file()
		err = errors.Join(db.QueryRowContext(e.t.Context(), query).Scan(&n), db.Close())
	} else {
		err = e.pool().QueryRow(e.t.Context(), query).Scan(&n)
	}
	if err != nil {
		e.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// A shop with a table apps of its own leaves it as it is and gives Outbox a schema of its own. Its
// transactions write to both.
func TestSchemaOfItsOwn(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: testenv.Database(t), redis: testenv.RedisServer(t).URL()}
	exec1(e, "CREATE TABLE apps (id int PRIMARY KEY, title text); INSERT INTO apps VALUES (1, 'Shop')")
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "up", "--plan"}} {
		r := e.run("", args...)
		if !strings.Contains(r.out+r.err, "CREATE SCHEMA outbox, then add search_path=outbox to the database URL") ||
			strings.Contains(r.out+r.err, "with  in") || r.code != 1 {
			t.Errorf("%v: exit code %d, want an error that names the way out:\n%s%s", args, r.code, r.out, r.err)
		}
	}
	shop := e
	exec1(e, "CREATE SCHEMA outbox")
	e.database += map[bool]string{true: "&", false: "?"}[strings.Contains(e.database, "?")] + "search_path=outbox"
	e.ok("", "migrate", "up")
	e.ok("", "migrate", "roles")
	e.login("outbox_relay").start("relay", "--dedup-window", "0")
	exec1(shop, `BEGIN; UPDATE apps SET title = 'Store';
		INSERT INTO outbox.outbox_events (event_topic, occurred_at, source_bc, payload, tenant_id) VALUES ('t', now(), 's', '{}', 'acme'); COMMIT`)
	e.eventually("the event is delivered", func() bool {
		return count(shop, "SELECT count(*) FROM outbox.outbox_events WHERE status = 'SENT'") == 1
	})
	if n := count(shop, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); n != 1 {
		t.Errorf("%d tables in the shop's schema, want its own", n)
	}
}
