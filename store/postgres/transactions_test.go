package postgres_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
)

// handlerTx is a transaction of either kind, as the handlers of this test use it.
type handlerTx struct {
	exec     func(ctx context.Context, statement string) error
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
					func(ctx context.Context, s string) error { _, err := tx.Exec(ctx, s); return err },
					func() error { return tx.Rollback(t.Context()) },
				})
			})
		},
		"database/sql": func(handle func(handlerTx) error) error {
			return postgres.SQLTransactions(db).Do(t.Context(), func(tx *sql.Tx) error {
				return handle(handlerTx{
					func(ctx context.Context, s string) error { _, err := tx.ExecContext(ctx, s); return err },
					tx.Rollback,
				})
			})
		},
	}
	own := errors.New("no such order")
	statement := func(sql string) func(handlerTx) error {
		return func(tx handlerTx) error { return tx.exec(t.Context(), sql) }
	}
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
		"rolled back by a statement":          {statement("ROLLBACK"), outbox.ClassRetryable},
		"committed by a statement":            {statement("COMMIT"), outbox.ClassRetryable},
		"an error of its own":                 {returns(own), outbox.ClassRetryable},
		"another server shuts down":           {returns(&pgconn.PgError{Code: "57P01"}), outbox.ClassRetryable},
		"another server reports a deadlock":   {returns(&pgconn.PgError{Code: "40P01"}), outbox.ClassRetryable},
		"another server's connection is lost": {returns(driver.ErrBadConn), outbox.ClassRetryable},
		"a deadline of its own":               {returns(context.DeadlineExceeded), outbox.ClassRetryable},
		"a deadline of its own in a statement": {func(tx handlerTx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			return tx.exec(ctx, "SELECT pg_sleep(60)")
		}, outbox.ClassRetryable},
		"this server reports a deadlock":  {raise("40P01"), outbox.ClassPostponed},
		"this server's disk is full":      {raise("53100"), outbox.ClassUnavailable},
		"this server ends the connection": {terminate, outbox.ClassUnavailable},
		"the connection's end ignored":    {replaced(terminate, nil), outbox.ClassUnavailable},
		"the connection's end replaced":   {replaced(terminate, own), outbox.ClassUnavailable},
	} {
		for way, do := range ways {
			err := do(c.handle)
			if got, _ := outbox.Classify(err); err == nil || got != c.want {
				t.Errorf("%s, %s: class %v of error %v, want class %v", name, way, got, err, c.want)
			}
		}
	}
	for _, sql := range []string{"ROLLBACK; BEGIN", "COMMIT; BEGIN", "COMMIT AND CHAIN"} {
		err := ways["pgx"](statement(sql))
		if got, _ := outbox.Classify(err); err == nil || got != outbox.ClassRetryable ||
			!strings.Contains(err.Error(), "the handler committed or rolled back its transaction") {
			t.Errorf("another transaction by %s: class %v of error %v", sql, got, err)
		}
	}
}

// A transaction whose context has ended is ended at the server although its handler has not
// returned, and its connection's place in the pool is free: also if a statement of the handler runs.
func TestTransactionOfHangingHandlerEnds(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	observer := newPool(t, url)
	if _, err := observer.Exec(t.Context(), "CREATE TABLE effects (n int)"); err != nil {
		t.Fatal(err)
	}
	count := func(of string) (n int) {
		if err := observer.QueryRow(t.Context(), "SELECT count(*) FROM "+of).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	one := func(t *testing.T) *pgxpool.Pool {
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxConns = 1
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	type way func(ctx context.Context, handle func(exec func(context.Context, string) error) error) error
	ways := map[string]func(t *testing.T) (way, int){
		"pgx": func(t *testing.T) (way, int) {
			tx := postgres.Transactions(one(t))
			return func(ctx context.Context, handle func(func(context.Context, string) error) error) error {
				return tx.Do(ctx, func(tx pgx.Tx) error {
					return handle(func(ctx context.Context, s string) error { _, err := tx.Exec(ctx, s); return err })
				})
			}, tx.Connections
		},
		"database/sql": func(t *testing.T) (way, int) {
			db := stdlib.OpenDBFromPool(one(t))
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(1)
			tx := postgres.SQLTransactions(db)
			return func(ctx context.Context, handle func(func(context.Context, string) error) error) error {
				return tx.Do(ctx, func(tx *sql.Tx) error {
					return handle(func(ctx context.Context, s string) error { _, err := tx.ExecContext(ctx, s); return err })
				})
			}, tx.Connections
		},
	}
	insert := "INSERT INTO effects VALUES (1)"
	for name, open := range ways {
		for _, statement := range []string{"", "SELECT pg_sleep(600)"} {
			t.Run(strings.TrimSpace(name+" "+statement), func(t *testing.T) {
				do, connections := open(t)
				if connections != 1 {
					t.Errorf("%d connections, want 1", connections)
				}
				ctx, cancel := context.WithCancel(t.Context())
				begun, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
				go func() {
					ended <- do(ctx, func(exec func(context.Context, string) error) error {
						err := exec(ctx, insert)
						close(begun)
						if err == nil && statement != "" {
							err = exec(context.WithoutCancel(ctx), statement)
						}
						<-release
						return errors.Join(err, exec(context.WithoutCancel(ctx), insert))
					})
				}()
				<-begun
				cancel()
				limited, stop := context.WithTimeout(t.Context(), tier.Patience())
				defer stop()
				if err := do(limited, func(func(context.Context, string) error) error { return nil }); err != nil {
					t.Errorf("no connection for another transaction: %v", err)
				}
				for open := 1; open > 0 && limited.Err() == nil; time.Sleep(5 * time.Millisecond) {
					open = count("pg_stat_activity WHERE datname = current_database() " +
						"AND xact_start IS NOT NULL AND pid <> pg_backend_pid()")
				}
				close(release)
				if err := <-ended; err == nil {
					t.Error("the transaction succeeded although its context had ended")
				}
				if n := count("effects"); n != 0 || limited.Err() != nil {
					t.Errorf("%d effects, %v", n, limited.Err())
				}
			})
		}
	}
}
