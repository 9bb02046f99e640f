package postgres_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

// handlerTx is a transaction of either kind, as the handlers of this test use it.
type handlerTx struct {
	exec     func(statement string) error
	rollback func() error
}

// An error that a handler returns or causes counts as an attempt. Only an error of the
// transaction's server, or of the connection to it, is unavailable or postponed.
func TestTransactionErrorsHaveTheClassOfTheirCause(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newDatabase(t))
	if _, err := pool.Exec(t.Context(), `CREATE TABLE later (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
		INSERT INTO later VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	ways := map[string]func(handle func(handlerTx) error) error{
		"pgx": func(handle func(handlerTx) error) error {
			return postgres.Transactions(pool).Do(t.Context(), func(tx pgx.Tx) error {
				return handle(handlerTx{
					func(s string) error { _, err := tx.Exec(t.Context(), s); return err },
					func() error { return tx.Rollback(t.Context()) },
				})
			})
		},
		"database/sql": func(handle func(handlerTx) error) error {
			return postgres.SQLTransactions(db).Do(t.Context(), func(tx *sql.Tx) error {
				return handle(handlerTx{
					func(s string) error { _, err := tx.ExecContext(t.Context(), s); return err },
					tx.Rollback,
				})
			})
		},
	}
	own := errors.New("no such order")
	statement := func(sql string) func(handlerTx) error { return func(tx handlerTx) error { return tx.exec(sql) } }
	raise := func(code string) func(handlerTx) error {
		return statement("DO $$ BEGIN RAISE SQLSTATE '" + code + "'; END $$")
	}
	returns := func(err error) func(handlerTx) error { return func(handlerTx) error { return err } }
	replaced := func(handle func(handlerTx) error, by error) func(handlerTx) error {
		return func(tx handlerTx) error { _ = handle(tx); return by }
	}
	terminate := statement("SELECT pg_terminate_backend(pg_backend_pid())")
	for name, c := range map[string]struct {
		handle func(handlerTx) error
		want   outbox.Class
	}{
		"a failed statement ignored":          {replaced(raise("22012"), nil), outbox.ClassRetryable},
		"a failed statement replaced":         {replaced(raise("22012"), own), outbox.ClassRetryable},
		"a constraint checked at the commit":  {statement("INSERT INTO later VALUES (1)"), outbox.ClassRetryable},
		"rolled back":                         {func(tx handlerTx) error { return tx.rollback() }, outbox.ClassRetryable},
		"an error of its own":                 {returns(own), outbox.ClassRetryable},
		"another server shuts down":           {returns(&pgconn.PgError{Code: "57P01"}), outbox.ClassRetryable},
		"another server reports a deadlock":   {returns(&pgconn.PgError{Code: "40P01"}), outbox.ClassRetryable},
		"another server's connection is lost": {returns(driver.ErrBadConn), outbox.ClassRetryable},
		"this server reports a deadlock":      {raise("40P01"), outbox.ClassPostponed},
		"this server's disk is full":          {raise("53100"), outbox.ClassUnavailable},
		"this server ends the connection":     {terminate, outbox.ClassUnavailable},
		"the connection's end ignored":        {replaced(terminate, nil), outbox.ClassUnavailable},
		"the connection's end replaced":       {replaced(terminate, own), outbox.ClassUnavailable},
	} {
		for way, do := range ways {
			err := do(c.handle)
			if got, _ := outbox.Classify(err); err == nil || got != c.want {
				t.Errorf("%s, %s: class %v of error %v, want class %v", name, way, got, err, c.want)
			}
		}
	}
}
