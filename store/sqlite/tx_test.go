package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
)

// A transaction that nobody ends would hold up every writer.
func TestInTxLeavesNoTransactionOpen(t *testing.T) {
	t.Parallel()
	db := filled(t)
	fails := errors.New("no")
	insert := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO apps (id, name, namespace) VALUES "+
			"('01900000-0000-7000-8000-000000000001', 'A', 'a')")
		return err
	}
	for name, fn := range map[string]func(tx *sql.Tx) error{
		"fails":  func(tx *sql.Tx) error { return errors.Join(insert(tx), fails) },
		"panics": func(tx *sql.Tx) error { panic(errors.Join(insert(tx), fails)) },
	} {
		func() {
			defer func() { _ = recover() }()
			if err := db.inTx(t.Context(), fn); !errors.Is(err, fails) {
				t.Errorf("%s: got error %v", name, err)
			}
		}()
		if n := value(t, db, "SELECT count(*) FROM apps WHERE namespace = 'a'"); n != "0" {
			t.Errorf("%s: %s rows are there", name, n)
		}
	}
	if err := db.inTx(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	if n := value(t, db, "SELECT count(*) FROM apps WHERE namespace = 'a'"); n != "1" {
		t.Errorf("%s rows are there, want 1", n)
	}
}

func TestExplainNamesWhatSQLiteSays(t *testing.T) {
	t.Parallel()
	db := filled(t)
	_, err := db.Reads().ExecContext(t.Context(), "DELETE FROM apps")
	explained := sqlitefile.Explain(err)
	if errors.Is(err, ErrReadOnly) || !errors.Is(explained, ErrReadOnly) || !errors.Is(explained, err) {
		t.Errorf("got %v for %v, want ErrReadOnly", explained, err)
	}
	for _, other := range []error{nil, context.Canceled, ErrBusy} {
		if got := sqlitefile.Explain(other); !errors.Is(got, other) || (got == nil) != (other == nil) {
			t.Errorf("got %v for %v", got, other)
		}
	}
}
