package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// What up will do with a table that an application has is printed, and what it cannot do makes the
// command fail.
func TestMigratePlan(t *testing.T) {
	tier.Full(t)
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
		if r := e.run("", args...); r.code != 1 || !strings.Contains(r.out+r.err, "column namespace of apps may be NULL") ||
			strings.Contains(r.out+r.err, "0 rows") {
			t.Errorf("%s: exit code %d\n%s%s", args, r.code, r.out, r.err)
		} else if len(args) == 3 {
			contains(t, r.out, "apps exists: rows not counted")
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

// A set that only who wants it applies is listed by what applies it and takes it away, and by
// status while it is there.
func TestMigrateOptionalSet(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := env{t: t, database: testenv.Database(t)}
	contains(t, e.ok("", "migrate", "up"), "core ")
	if out := e.ok("", "migrate", "status"); strings.Contains(out, "log ") {
		t.Errorf("status lists a set that nobody has asked for:\n%s", out)
	}
	contains(t, e.ok("", "migrate", "up", "--set", "log"), "log ", "001_outbox_log")
	contains(t, e.ok("", "migrate", "up"), "(nothing)")
	contains(t, e.ok("", "migrate", "status"), "log ", "up to date")
	contains(t, e.ok("", "migrate", "down", "--yes", "--set", "log", "--all"), "log ", "001_outbox_log")
	if out := e.ok("", "migrate", "status"); strings.Contains(out, "log ") {
		t.Errorf("status lists a set that is gone:\n%s", out)
	}
}

// The commands write into a log, and say how far its relays are behind.
func TestWriteIntoALog(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := env{t: t, database: testenv.Database(t)}
	e.ok("", "migrate", "up", "--set", "core,log")
	e.ok(`{"total": 12}`, "write", "--table", "outbox_log", "--topic", "order.placed", "--key", "42")
	line := `{"id": "018f0000-0000-7000-8000-000000000001", "payload": 1}` + "\n"
	e.ok(line+line, "write", "--table", "outbox_log", "--topic", "order.placed", "--jsonl") // it knows no ids
	contains(t, e.ok("", "lanes", "--table", "outbox_log", "-o", "json"), `"counted": 3`)
	if r := e.run("", "events", "--table", "outbox_log"); r.code != 2 || !strings.Contains(r.err, "--sink SINK") {
		t.Errorf("events: exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

// A folder is written, listed and continued; what a tool has applied is shown, left alone, and
// taken over.
func TestMigrateExport(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := env{t: t, database: testenv.Database(t)}
	dir := filepath.Join(t.TempDir(), "migrations")
	type file struct {
		File, Step string
		Written    bool
	}
	files := decode[struct{ Items []file }](t,
		e.ok("", "migrate", "export", "--format", "goose", "--dir", dir, "--set", "core", "-o", "json")).Items
	if len(files) != int(pgmigrations.Required("core")) ||
		files[1] != (file{"00002_outbox_core_002_outbox_events.sql", "core/002_outbox_events", true}) {
		t.Fatalf("got %v", files)
	}
	contains(t, e.ok("", "migrate", "export", "--format", "goose", "--dir", dir, "--set", "core,crawl"),
		fmt.Sprintf("%05d_outbox_crawl_001_crawl_schema.sql", len(files)+1), "was there", "written")
	onFile := env{t: t, database: "sqlite:" + filepath.Join(t.TempDir(), "o.db")}
	if r := onFile.run("", "migrate", "export", "--format", "goose", "--dir", dir); r.code != 2 ||
		!strings.Contains(r.err, "SQLite") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}

	conn, err := pgx.Connect(t.Context(), e.database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	run := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	run("CREATE TABLE goose_db_version (version_id bigint, is_applied boolean)") // as goose has it
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.File))
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		run(up)
	}
	contains(t, e.ok("", "migrate", "status"), "up to date, applied by goose", "absent")
	contains(t, e.ok("", "migrate", "up"), "(nothing)")
	contains(t, e.ok("", "migrate", "up", "--plan"), "core is up to date: goose has applied it")
	if r := e.run("", "migrate", "up", "--set", "crawl"); r.code != 1 ||
		!strings.Contains(r.err, "outbox migrate export --set core,crawl") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
}

// A shop's database gets no table of crawl runs unasked. Where somebody has asked for them, or has
// such tables, up keeps them up to date without being told again.
func TestMigrateMakesNoCrawlTablesUnasked(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, database := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env{t: t, database: database(t)}
			count := e.or("SELECT count(*)::int FROM pg_class WHERE relname LIKE 'crawl\\_%' OR relname = 'run_outbox'",
				"SELECT count(*) FROM sqlite_master WHERE name LIKE 'crawl\\_%' ESCAPE '\\' OR name = 'run_outbox'")
			for range 2 {
				e.ok("", "migrate", "up")
			}
			if n := query[int](e, count); n != 0 {
				t.Errorf("up made %d tables, indexes and views of crawl", n)
			}
			if said := e.ok("", "migrate", "status"); strings.Contains(said, "crawl") || !strings.Contains(said, "events") {
				t.Errorf("status says %s", said)
			}
			if said := e.ok("", "migrate", "print"); strings.Contains(said, "crawl_runs (") {
				t.Error("print has crawl_runs")
			}
			r := e.run("", "serve", "--sink", "memory:", "--http", "127.0.0.1:0", "--auth", "none")
			if r.code != 1 {
				t.Errorf("serve: exit code %d", r.code)
			}
			contains(t, r.err, "outbox migrate up --set core,crawl")
			contains(t, e.ok("", "migrate", "up", "--set", "crawl"), "001_crawl_schema")
			contains(t, e.ok("", "migrate", "status"), "crawl")
			e.ok("", "migrate", "down", "--yes", "--set", "crawl")
			contains(t, e.ok("", "migrate", "up"), "002_")
			if !e.onFile() { // where what is there is looked at
				other := env{t: t, database: database(t)}
				exec1(other, "CREATE TABLE crawl_runs (one int)")
				r := other.run("", "migrate", "up")
				if r.code != 1 {
					t.Errorf("up over a crawl_runs of another form: exit code %d", r.code)
				}
				contains(t, r.err, "crawl_runs")
			}
		})
	}
}
