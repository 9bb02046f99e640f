package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sqlitetest"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// An error that a handler returns counts as an attempt, also if it is one that SQLite reports of
// another file. Only an error of the group's own file is unavailable.
func TestTransactionErrorsHaveTheClassOfTheirCause(t *testing.T) {
	t.Parallel()
	files := sqlitetest.Files(t)
	busy := func(t *testing.T) error { // of another file, as SQLite reports it
		name := filepath.Join(t.TempDir(), "other.db")
		other := func() *sql.DB {
			db, err := sql.Open("sqlite", "file:"+name)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return db
		}
		tx, err := other().BeginTx(t.Context(), nil)
		if err == nil {
			_, err = tx.ExecContext(t.Context(), "CREATE TABLE a (n)")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		_, err = other().ExecContext(t.Context(), "CREATE TABLE b (n)")
		return err
	}
	for name, c := range map[string]struct {
		handle func(t *testing.T, db *sqlite.DB, tx *sql.Tx) error
		want   outbox.Class
	}{
		"another file is busy": {func(t *testing.T, _ *sqlite.DB, _ *sql.Tx) error {
			return busy(t)
		}, outbox.ClassRetryable},
		"another file is locked": {func(*testing.T, *sqlite.DB, *sql.Tx) error {
			return sqlite.ErrBusy
		}, outbox.ClassRetryable},
		"another file is replaced": {func(*testing.T, *sqlite.DB, *sql.Tx) error {
			return sqlite.ErrReplaced
		}, outbox.ClassRetryable},
		"rolled back": {func(_ *testing.T, _ *sqlite.DB, tx *sql.Tx) error {
			return tx.Rollback()
		}, outbox.ClassRetryable},
		"rolled back by a statement": {func(t *testing.T, _ *sqlite.DB, tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "ROLLBACK")
			return err
		}, outbox.ClassRetryable},
		"this file is removed": {func(t *testing.T, db *sqlite.DB, _ *sql.Tx) error {
			var name string
			if err := db.Reads().QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list").Scan(&name); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Rename(name+".away", name) })
			return errors.Join(os.Rename(name, name+".away"), errors.New("no such order"))
		}, outbox.ClassUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			db := files(t)
			err := sqlite.Transactions(db).Do(t.Context(), func(tx *sql.Tx) error { return c.handle(t, db, tx) })
			if got, _ := outbox.Classify(err); err == nil || got != c.want {
				t.Errorf("class %v of error %v, want class %v", got, err, c.want)
			}
		})
	}
}
