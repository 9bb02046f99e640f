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
	if _, err := frozen.Exec(t.Context(), `SELECT FROM outbox_inbox_turn`); err != nil { // its snapshot is of now
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
