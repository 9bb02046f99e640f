package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/test/inboxtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func TestInboxSuite(t *testing.T) {
	t.Parallel()
	inboxtest.Suite(t, func(t *testing.T) inboxtest.Harness {
		pool := browsed(t)
		exec(t, pool, "CREATE TABLE effects (n INTEGER)")
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { _ = db.Close() })
		return inboxtest.Harness{New: NewSQLInbox, Begin: func(ctx context.Context) (*sql.Tx, error) {
			return db.BeginTx(ctx, nil)
		}, Earlier: func(column string, by time.Duration) string {
			return fmt.Sprintf("%s - interval '%d seconds'", column, int(by.Seconds()))
		}}
	})
}

// With the rights of outbox_consumer and no others: remembering, another's open transaction that
// holds a sweep up, and a transaction with one snapshot, which must not miss what was handled since
// it began.
func TestInboxOfAConsumer(t *testing.T) {
	t.Parallel()
	admin := browsed(t)
	pool := as(t, admin, "outbox_consumer")
	in, err := NewInbox(inbox.Config{Consumer: "billing", Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	once := func(tx pgx.Tx, event string) (inbox.Result, error) {
		return in.Once(t.Context(), tx, inbox.ID{Event: event}, func() error { return nil })
	}
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return in.Register(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
	exec(t, admin, `UPDATE outbox_inbox_turn SET since = now() - interval '2 hours'`)
	frozen, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = frozen.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := frozen.Exec(t.Context(), `SELECT 1`); err != nil { // its snapshot is of now
		t.Fatal(err)
	}
	open, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if result, err := once(open, "1"); err != nil || result != inbox.Done {
		t.Fatalf("got %v, error %v", result, err)
	}
	sweep := func() (ended bool, err error) {
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
			ended, err = in.Sweep(t.Context(), tx)
			return err
		})
		return ended, err
	}
	if _, err := sweep(); !errors.Is(err, inbox.ErrBusy) {
		t.Errorf("beside an open transaction: %v", err)
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ended, err := sweep(); err != nil || !ended {
		t.Errorf("ended %t, error %v", ended, err)
	}
	if result, err := once(frozen, "1"); err == nil || pgtable.Code(err) != "40001" {
		t.Errorf("with a snapshot of before: %v, error %v", result, err)
	}
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		result, err := once(tx, "1")
		if err == nil && result != inbox.Duplicate {
			t.Errorf("after the turn: %v", result)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A lock on outbox_inbox_0 stops the first transaction after it has read which table to write to.
// If a sweep then changed the table, a duplicate would be inserted into the other table without
// waiting for the first transaction, and both would be processed.
func TestInboxSweepWaitsForTransactionThatRemembers(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	in, err := NewInbox(inbox.Config{Consumer: "billing", Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE outbox_inbox_turn SET since = now() - interval '1 year'`)
	locked, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locked.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := locked.Exec(t.Context(), `LOCK TABLE outbox_inbox_0 IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := in.Once(t.Context(), tx, inbox.ID{Event: "1"}, func() error { return nil })
			return err
		})
	}()
	testenv.Eventually(t, "the transaction waits for the lock", func() bool {
		var waits bool
		err := locked.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND l.relation = 'outbox_inbox_0'::regclass AND NOT l.granted)`).Scan(&waits)
		return err == nil && waits
	})
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		swept, err := in.Sweep(t.Context(), tx)
		if err == nil {
			t.Errorf("the sweep did not wait; it ended the turn: %t", swept)
		}
		return err
	}); err != nil && !errors.Is(err, inbox.ErrBusy) {
		t.Errorf("sweep: %v, want ErrBusy", err)
	}
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
