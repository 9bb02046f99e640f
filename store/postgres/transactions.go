package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Transactions are those of a pool, for the handlers of a group (package inbox/group).
func Transactions(pool *pgxpool.Pool) inbox.Transactions[pgx.Tx] {
	return inbox.Transactions[pgx.Tx]{
		Inbox: newInbox[pgx.Tx],
		Do: func(ctx context.Context, fn func(pgx.Tx) error) error {
			return transact(ctx, pool, nil, func(tx pgx.Tx, _ []inbox.Known) error { return fn(tx) })
		},
		Remembering: func(ctx context.Context, ids []inbox.Delivery, fn func(pgx.Tx, []inbox.Known) error) error {
			return transact(ctx, pool, ids, fn)
		},
	}
}

// transact runs fn in a transaction that begins and remembers deliveries, if there are any, in one
// round trip.
func transact(
	ctx context.Context, pool *pgxpool.Pool, ids []inbox.Delivery, fn func(pgx.Tx, []inbox.Known) error,
) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return classOf(ctx, err, true)
	}
	defer conn.Release()
	var begin pgx.Batch
	begin.BeginTx(pgx.TxOptions{})
	var known []inbox.Known
	if len(ids) > 0 {
		statement, args, err := remembering(ids)
		if err != nil {
			return err
		}
		begin.Queue(statement, args...).Query(func(rows pgx.Rows) (err error) {
			known, err = knownOf(rows)
			return err
		})
	}
	begun := conn.SendBatch(ctx, &begin)
	tx := begun.Tx()
	err = begun.Close()
	defer func() { _ = tx.Rollback(ctx) }() // of what fn has left; after a commit it does nothing
	if err != nil {
		return classOf(ctx, err, true)
	}
	if err := fn(tx, known); err != nil {
		return classOf(ctx, err, tx.Conn().IsClosed())
	}
	return classOf(ctx, tx.Commit(ctx), true)
}

// SQLTransactions is Transactions for database/sql.
func SQLTransactions(db *sql.DB) inbox.Transactions[*sql.Tx] {
	return inbox.Transactions[*sql.Tx]{
		Inbox: newInbox[*sql.Tx],
		Do: func(ctx context.Context, fn func(*sql.Tx) error) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return classOf(ctx, err, true)
			}
			defer func() { _ = tx.Rollback() }() // of what fn has left; after a commit it does nothing
			if err := fn(tx); err != nil {
				return classOf(ctx, err, errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone))
			}
			return classOf(ctx, tx.Commit(), true)
		},
	}
}

// again is how long to wait before a transaction is tried again that others' transactions have made
// fail.
const again = 20 * time.Millisecond

// classOf gives the error of a transaction its class. connection says that an error by which no
// server has answered is of the connection, and not the handler's own.
func classOf(ctx context.Context, err error, connection bool) error {
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case pgtable.Transient(err):
		return outbox.Postponed(err, again)
	case pgtable.Code(err) == "" && connection, pgtable.Unwell(err):
		return outbox.Unavailable(err)
	}
	return err
}
