package sqlitemigrations

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// As for PostgreSQL: the record of a version is not believed.
func TestUpRefusesTablesThatAreNotWhatIsRecorded(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	run := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "PRAGMA legacy_alter_table = ON; "+statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, set := range Sets {
		if err := Up(t.Context(), db, set); err != nil {
			t.Fatal(err)
		}
		tables, err := embedded.Columns(set)
		if err != nil {
			t.Fatal(err)
		}
		for table, columns := range tables {
			var have int
			row := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pragma_table_xinfo(?)", table)
			if err := row.Scan(&have); err != nil || have != len(columns) {
				t.Errorf("the files tell of %d columns of %s, the schema has %d (%v)", len(columns), table, have, err)
			}
			run(fmt.Sprintf("ALTER TABLE %s RENAME TO elsewhere", table))
			if err := Up(t.Context(), db, set); err == nil || !strings.Contains(err.Error(), "lacks table "+table+":") {
				t.Errorf("without %s: got error %v", table, err)
			}
			run(fmt.Sprintf("ALTER TABLE elsewhere RENAME TO %s", table))
		}
	}
}
