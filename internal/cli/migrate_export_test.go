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
)

// A folder is written, listed and continued; what a tool has applied is shown, left alone, and taken over.
func TestMigrateExport(t *testing.T) {
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
	contains(t, e.ok("", "migrate", "up", "--take-over", "--set", "core,crawl"), "001_crawl_schema")
}
