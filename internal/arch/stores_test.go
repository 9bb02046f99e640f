package arch

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

const (
	onePostgres = "store/postgres"
	oneSQLite   = "store/sqlite"
)

// only are the files of one store that the other has no use for. Whoever knows one store finds his way in the other:
// the rest have the same names.
var only = map[string]map[string]string{
	onePostgres: {
		"session.go": "a file has no pooler before it", "encoding.go": "SQLite's text has one encoding",
		"sql/write_encoding.sql": "the same", "eventbus_tx.go": "SQLite has database/sql's transactions alone",
		"intx.go": "INSERT and COMMIT in one round trip: a file has none", "queue.go": "the same, with a pgx.Batch",
		"check_parts.go": "roles", "sql/check_allowed.sql": "roles", "sql/retention_allowed.sql": "roles",
		"sql/check_policy.sql": "row-level security", "sql/check_visible.sql": "row-level security",
		"sql/browse_tenant.sql": "row-level security", "sql/bus_tenant.sql": "row-level security",
		"sql/run_tenant.sql": "row-level security", "sql/run_bounded.sql": "SQLite's transactions are within the process",
		"types.go": "SQLite's check.go: one statement tells all about a column", "sql/check_nullable.sql": "the same",
		"sql/session.sql":         "SQLite's connections are set up by their names",
		"sql/lease_durable.sql":   "every commit of SQLite's is durable",
		"sql/browse_order.sql":    "SQLite's lists are always in the order of positions",
		"sql/run_differ.sql":      "SQLite's runs are compared in Go, as jsonb would",
		"sql/retention_pages.sql": "SQLite's rows are stored in the order of their positions",
		"sql/retention_sweep.sql": "the same",
		"sql/write_lock.sql":      "SQLite has one writer at a time", "sql/run_turn.sql": "the same",
		"sql/dlq_collect_turn.sql": "the same",
		"sql/origin.sql":           "SQLite's table is known by its file", "sql/origin_by_name.sql": "the same",
		"sql/lease_name.sql":  "a file has no schemas",
		"sql/settle_left.sql": "SQLite locks no rows", "sql/replay_until.sql": "the clock is the machine's",
	},
	oneSQLite: {
		"tx.go": "database/sql's transactions, pgx has the like", "times.go": "times are text",
		"now.go": "PostgreSQL has NOW()", "json.go": "JSON is text",
		"sql/tables.sql": "whose file it is: a server's database is nobody's by accident",
		"inspect.go":     "the same", "place.go": "a server looks after its files",
		"turn.go": "a server has a queue for its locks", "conn.go": "the same", "library.go": "a server takes any client",
		"sql/library.sql": "the same", "sql/check_name.sql": "names are found in any case",
		"sql/check_writable.sql": "a role is asked for its rights",
		"index.go":               "the planner is told which index to take", "sql/check_indexes.sql": "the same",
		"fingerprint.go": "PostgreSQL has regular expressions and a hash",
		"browse_row.go":  "pgx scans rows into structs", "deadletter_revive.go": "json_populate_record, in Go",
		"sql/dlq_recorded.sql": "the same job's letter is looked for first",
		"sql/lease_due.sql":    "asked before the write lock is",
		"sql/lease_cut.sql":    "the clock is a machine's, and may be set back", "sql/run_cut.sql": "the same",
		"sql/lease_lapsed.sql":   "a transaction elsewhere can make all relays lapse at once",
		"sql/retention_held.sql": "the same", "sql/run_next.sql": "the same",
		"sql/retention_keep.sql": "rows are archived by a statement of their own",
		"sql/bus_letter.sql":     "an UPDATE that also inserts is two statements",
		"sql/run_send.sql":       "an INSERT into two tables is two statements",
		"sql/settle_held.sql":    "a settle is several statements under one lock", "sql/settle_letter.sql": "the same",
		"sql/token_sweep.sql": "the same",
	},
}

// TestStoresHaveTheSameFiles compares the Go files and the statements of the stores by name.
func TestStoresHaveTheSameFiles(t *testing.T) {
	t.Parallel()
	names := map[string]map[string]bool{}
	for _, store := range []string{onePostgres, oneSQLite} {
		names[store] = storeFiles(t, os.DirFS(path.Join(root, store)))
	}
	for _, pair := range [][2]string{{onePostgres, oneSQLite}, {oneSQLite, onePostgres}} {
		has, lacks := pair[0], pair[1]
		for name := range names[has] {
			if _, excused := only[has][name]; !names[lacks][name] && !excused {
				t.Errorf("%s has %s, %s has not: give it the other's name, or say in `only` why there is none", has, name, lacks)
			}
		}
		for name := range only[has] {
			if !names[has][name] || names[lacks][name] {
				t.Errorf("%s of %s needs no excuse any more", name, has)
			}
		}
	}
}

func storeFiles(t *testing.T, store fs.FS) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, folder := range []string{".", "sql"} {
		entries, err := fs.ReadDir(store, folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.IsDir() && !strings.HasSuffix(e.Name(), "_test.go") {
				names[path.Join(folder, e.Name())] = true
			}
		}
	}
	return names
}
