package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

const (
	onePostgres = "store/postgres"
	oneSQLite   = "store/sqlite"

	tablePostgres = "internal/store/pgtable"
	tableSQLite   = "internal/store/sqlitetable"

	coldPostgres = "internal/store/pgcold"
	coldSQLite   = "internal/store/sqlitecold"

	serverPostgres = "server/pgstore"
	serverSQLite   = "server/sqlitestore"
)

// twins are stores of the same things in two databases.
var twins = [][2]string{{onePostgres, oneSQLite}, {tablePostgres, tableSQLite}, {coldPostgres, coldSQLite},
	{serverPostgres, serverSQLite}}

// logTables is why SQLite has no file: one writer at a time leaves nothing that commits late, and
// deletes are cheap.
const logTables = "SQLite has no log tables"

// logShared is why PostgreSQL has a file here: a log does what is in it as every table does.
// SQLite's is its store's.
// Of the numbers that PostgreSQL must check.
const numbers = "SQLite draws a position above all that the table has, whatever its sequence says"

const locksOfTables = "SQLite has one lock, of the whole file"

const logShared = "shared with log tables, which SQLite has not"

// server is why SQLite has no such condition.
const server = "a condition of a server, its roles and its vacuum, or an audit of tables that many write into"

// only are the files of one store that its twin has no use for. Whoever knows one store finds his
// way in the other: the rest have the same names.
var only = map[string]map[string]string{
	onePostgres: {
		"intx.go": "INSERT and COMMIT in one round trip: a file has none", "queue.go": "the same, with a pgx.Batch",
		"sql/zone.sql":            "SQLite's times are UTC",
		"sql/session.sql":         "SQLite's connections are set up by their names",
		"sql/retention_pages.sql": "SQLite's rows are stored in the order of their positions",
		"sql/retention_sweep.sql": "the same",
		"sql/write_lock.sql":      "SQLite has one writer at a time",
		"sql/lease_read_by.sql":   "SQLite's lease_reader.sql returns the reader",
		"sql/origin.sql":          "SQLite's table is known by its file", "sql/origin_by_name.sql": "the same",
		"sql/settle_left.sql": "SQLite locks no rows",
		"sql/check_types.sql": "internal/store/sqlitetable: one statement tells all",
		"sql/claim_keys.sql":  "SQLite reads every value, whatever it is",
		"watch.go":            "a claim that finds nothing costs SQLite nothing", "sql/watch.sql": "the same",
	},
	oneSQLite: {
		"times.go": "times are text",
		"now.go":   "PostgreSQL has NOW()",
		"place.go": "a server looks after its files",
		"turn.go":  "a server has a queue for its locks", "conn.go": "the same",
		"library.go":              "a server takes any client",
		"sql/lease_pauses.sql":    "SQLite's lanes and pauses are read by one transaction, PostgreSQL's by one statement",
		"sql/library.sql":         "the same",
		"written_over.go":         "a server's files are its own",
		"first_page.go":           "the same",
		"index.go":                "the planner is told which index to take",
		"sql/settle_archive.sql":  "PostgreSQL's DELETE returns the rows that an INSERT archives",
		"sql/check_positions.sql": "a sequence gives no number twice",
		"sql/lease_due.sql":       "asked before the write lock is",
		"sql/lease_cut.sql":       "the clock is a machine's, and may be set back",
		"sql/lease_lapsed.sql":    "a transaction elsewhere can make all relays lapse at once",
		"sql/retention_held.sql":  "the same",
		"sql/retention_rowid.sql": "a table may have none",
		"sql/claim_row.sql":       "PostgreSQL's is in internal/store/pgtable, for logs",
		"sql/settle_owed.sql":     "the same",
		"sql/retention_keep.sql":  "rows are archived by a statement of their own",
		"sql/settle_held.sql":     "a settle is several statements under one lock",
	},
	tablePostgres: {
		"claim.go": logShared, "refusal.go": logShared, "blocker.go": locksOfTables, "sql/blocker.sql": locksOfTables,
		"sql/claim_row.sql": logShared, "sql/settle_owed.sql": logShared,
		"sql/watch_leases.sql": logShared,
		"sql/durable.sql":      "every commit of SQLite's is durable",
		"sql/ordered.sql":      "SQLite's lists are always in the order of positions",
		"sql/found.sql":        "SQLite settles a row with a statement",
		"numbers.go":           numbers, "sql/check_numbers.sql": numbers, "sql/check_number.sql": numbers,
		"sql/check_drawn.sql": numbers, "sql/repair_positions.sql": numbers,
		"sql/write_encoding.sql": "SQLite's text has one encoding",
	},
	tableSQLite: {
		"sql/value.sql":         "a column may hold values of any type",
		"sql/columns.sql":       "PostgreSQL's is in internal/store/pgschema",
		"sql/settle_letter.sql": "a settle is several statements under one lock",
	},
	coldPostgres: {
		"sql/tenant.sql": "row-level security", "sql/bus_tenant.sql": "the same", "sql/log_lanes.sql": logTables,
		"sql/log_groups.sql":           logTables,
		"sql/logged.sql":               logTables,
		"sql/logged_readers.sql":       logTables,
		"sql/inbox_once.sql":           "SQLite asks for each delivery alone",
		"sql/condition_audit_dead.sql": server, "sql/condition_audit_leases.sql": server,
		"sql/condition_audit_order.sql": server, "sql/condition_audit_owed.sql": server,
		"sql/condition_audit_settled.sql":   server,
		"sql/condition_autovacuum.sql":      server,
		"sql/condition_clocks.sql":          server,
		"sql/condition_connections.sql":     server,
		"sql/condition_dead_rows.sql":       server,
		"sql/condition_index_invalid.sql":   server,
		"sql/condition_inbox.sql":           server,
		"sql/condition_index_missing.sql":   server,
		"sql/condition_foreign_objects.sql": server,
		"sql/condition_kept.sql":            server,
		"sql/condition_refused.sql":         server,
		"sql/condition_retention.sql":       server,
		"sql/condition_settings.sql":        server,
		"sql/condition_superuser.sql":       server,
		"sql/condition_vacuum_held.sql":     server,
		"sql/condition_versions.sql":        server,
	},
	coldSQLite: {
		"fingerprint.go":     "PostgreSQL has regular expressions and a hash",
		"sql/inbox_turn.sql": "PostgreSQL has a function",
		"sql/inbox_seen.sql": "the same", "sql/inbox_empty.sql": "the same", "sql/inbox_claims.sql": "the same",
	},
	serverPostgres: {
		"subscriptions.go":             logTables,
		"sql/subscription_add.sql":     logTables,
		"sql/subscription_ack.sql":     logTables,
		"sql/subscription_known.sql":   logTables,
		"sql/subscription_letters.sql": logTables,
		"sql/subscription_list.sql":    logTables,
		"sql/subscription_nack.sql":    logTables,
		"sql/subscription_next.sql":    logTables,
		"sql/subscription_pause.sql":   logTables,
		"sql/subscription_ready.sql":   logTables,
		"sql/subscription_remove.sql":  logTables,
		"sql/subscription_return.sql":  logTables,
		"sql/subscription_rewind.sql":  logTables,
		"check_parts.go":               "roles", "sql/check_policy.sql": "row-level security",
		"sql/run_tenant.sql":  "row-level security",
		"sql/run_bounded.sql": "SQLite's transactions are within the process",
		"sql/begin.sql":       "SQLite's transactions are database/sql's", "sql/commit.sql": "the same",
	},
	serverSQLite: {
		"sql/check_indexes.sql": "the planner is told which index to take",
		"sql/run_cut.sql":       "the clock is a machine's, and may be set back",
		"sql/run_waits.sql":     "asked before the write lock is",
	},
}

// TestStoresHaveTheSameFiles compares the Go files and the statements of twins by name.
func TestStoresHaveTheSameFiles(t *testing.T) {
	t.Parallel()
	for _, pair := range twins {
		for _, missing := range unpaired(pair, only, func(store string) map[string]bool {
			return storeFiles(t, os.DirFS(path.Join(root, store)))
		}) {
			t.Error(missing)
		}
	}
}

// unpaired returns what one of two twins has and the other has not, without an excuse, and the
// excuses that are none.
func unpaired(
	pair [2]string, excuses map[string]map[string]string, files func(store string) map[string]bool,
) (found []string) {
	for i, has := range pair {
		lacks := pair[1-i]
		have, others := files(has), files(lacks)
		for name := range have {
			if _, excused := excuses[has][name]; !others[name] && !excused {
				found = append(found, fmt.Sprintf("%s has %s, %s has not: give it the other's name, or say in `only` why there is "+
					"none", has, name, lacks))
			}
		}
		for name := range excuses[has] {
			if !have[name] || others[name] {
				found = append(found, fmt.Sprintf("%s of %s needs no excuse any more", name, has))
			}
		}
	}
	return found
}

func TestUnpairedIsCaught(t *testing.T) {
	t.Parallel()
	for _, pair := range twins {
		files := map[string]map[string]bool{
			pair[0]: {"runs.go": true, "sql/get.sql": true, "roles.go": true},
			pair[1]: {"run.go": true, "sql/get.sql": true},
		}
		excuses := map[string]map[string]string{pair[0]: {"roles.go": "roles", "sql/get.sql": "an old one"}}
		found := strings.Join(unpaired(pair, excuses, func(store string) map[string]bool { return files[store] }), "\n")
		for _, want := range []string{pair[0] + " has runs.go", pair[1] + " has run.go", "sql/get.sql of " + pair[0]} {
			if !strings.Contains(found, want) {
				t.Errorf("want %q among\n%s", want, found)
			}
		}
		if strings.Contains(found, "roles.go") {
			t.Errorf("caught by mistake:\n%s", found)
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
