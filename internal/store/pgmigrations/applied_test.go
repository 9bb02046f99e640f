package pgmigrations

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// The record of a version is not believed: a database whose tables were made by another build, or
// that lacks one of them, has to be repaired, and "outbox migrate up" is not the way.
func TestUpRefusesTablesThatAreNotWhatIsRecorded(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url := testenv.Database(t)
	if err := Up(t.Context(), url, every...); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	var exist int
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM information_schema.columns "+
		"WHERE table_schema = current_schema() AND table_name NOT LIKE 'outbox_migrations%' "+
		"AND table_name !~ '^outbox_log_\\d|inbox_1|run_outbox|adopted|written'").Scan(&exist)
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, set := range every {
		tables, err := embedded.Columns(set)
		if err != nil {
			t.Fatal(err)
		}
		for table, columns := range tables {
			known += len(columns)
			column := columns[len(columns)-1]
			for what, statement := range map[string]string{
				"table " + table:              fmt.Sprintf("ALTER TABLE %s RENAME TO elsewhere", table),
				column + " of table " + table: fmt.Sprintf("ALTER TABLE %s RENAME %s TO former", table, column),
			} {
				if _, err := conn.Exec(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
				err := Up(t.Context(), url, set)
				if err == nil || !strings.Contains(err.Error(), "lacks "+what+":") {
					t.Errorf("%s: got error %v, want one that names %s", statement, err, what)
				}
				back := fmt.Sprintf("ALTER TABLE %s RENAME former TO %s", table, column)
				if strings.HasPrefix(what, "table") {
					back = fmt.Sprintf("ALTER TABLE elsewhere RENAME TO %s", table)
				}
				if _, err := conn.Exec(t.Context(), back); err != nil {
					t.Fatalf("%s: %v", back, err)
				}
			}
		}
	}
	if known != exist {
		t.Errorf("the files tell of %d columns, the catalog has %d", known, exist)
	}
	if err := Up(t.Context(), url, every...); err != nil {
		t.Error(err)
	}
}
