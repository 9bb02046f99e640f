package cli_test

import (
	"strings"
	"testing"
)

// A shop's database gets no table of crawl runs unasked. Where somebody has asked for them, or has such tables, up
// keeps them up to date without being told again.
func TestMigrateMakesNoCrawlTablesUnasked(t *testing.T) {
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
			e.ok("", "migrate", "down", "--set", "crawl")
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
