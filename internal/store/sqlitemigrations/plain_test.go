package sqlitemigrations_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/sqlitemigrations"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// writing is what a program in any language does to the three outboxes.
const writing = `
INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES ('a', '2026-01-01T00:00:00.000000Z', 'test', '{"n":1}');
INSERT INTO event_outbox (app_id, event_id, event_type, payload) SELECT id, '0190a2b4-0000-7000-8000-000000000001', 'a', '{"n":1}' FROM apps;
INSERT INTO crawl_runs (id, app_package) VALUES ('0190a2b4-0000-7000-8000-000000000002', 'com.example');
INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT id, 'RUN_STARTED', '{}' FROM crawl_runs;
INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT id, 'RUN_STARTED', '{}' FROM crawl_runs;
INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history) SELECT '1', id, 'a', '{}', 'Timeout', 1, '[]' FROM apps;
INSERT INTO run_outbox (run_id, event_type, payload) SELECT id, 'PAGE_FOUND', '{}' FROM crawl_runs;
UPDATE run_outbox SET published_at = '2026-01-01T00:00:00.000000Z';
PRAGMA integrity_check;
`

// The tables are for every SQLite since 3.37, not only for the one that this program has in it:
// whichever is on this machine writes to them. (Debian 12 has 3.40.)
func TestPlainSQLOfTheMachine(t *testing.T) {
	t.Parallel()
	programs := map[string][]string{
		"sqlite3": {"-batch", "-bail"},
		"python3": {"-c", `import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for statement in sys.stdin.read().split(";"):
    for row in db.execute(statement): print(row[0])
    db.commit()`},
	}
	found := false
	for name, args := range programs {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		found = true
		path := filepath.Join(t.TempDir(), "outbox.db")
		db, err := sqlite.Create(t.Context(), path, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := sqlitemigrations.Up(t.Context(), db.Writes(), sqlitemigrations.Sets...); err != nil {
			t.Fatal(err)
		}
		write := exec.CommandContext(t.Context(), program, append(args, path)...)
		write.Stdin = strings.NewReader(writing)
		if out, err := write.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	if !found {
		t.Log("neither sqlite3 nor python3 is on PATH: no other SQLite than this program's has been asked")
	}
}
