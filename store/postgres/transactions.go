package postgres

import (
	"context"
	"database/sql"
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
		const aborted = 'E'
		failed := pgtable.Code(err) != "" && conn.Conn().PgConn().TxStatus() == aborted
		return classOf(ctx, err, failed || conn.Conn().IsClosed())
	}
	err = tx.Commit(ctx)
	return classOf(ctx, err, pgtable.Code(err) != "" || conn.Conn().IsClosed())
}

// SQLTransactions is Transactions for database/sql.
func SQLTransactions(db *sql.DB) inbox.Transactions[*sql.Tx] {
	return inbox.Transactions[*sql.Tx]{
		Inbox: newInbox[*sql.Tx],
		Do: func(ctx context.Context, fn func(*sql.Tx) error) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return classOf(ctx, err, true)
			}
			defer func() { _ = conn.Close() }() // returns it to the pool
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return classOf(ctx, err, true)
			}
			defer func() { _ = tx.Rollback() }() // of what fn has left; after a commit it does nothing
			if err := fn(tx); err != nil {
				failed := pgtable.Code(err) != "" && aborted(ctx, tx)
				_ = tx.Rollback() // lost would wait for a transaction that is open
				return classOf(ctx, err, failed || lost(ctx, conn))
			}
			err = tx.Commit()
			return classOf(ctx, err, pgtable.Code(err) != "" || err != nil && lost(ctx, conn))
		},
	}
}

// aborted reports whether a statement of tx failed: PostgreSQL then refuses all others.
func aborted(ctx context.Context, tx *sql.Tx) bool {
	const inFailedTransaction = "25P02"
	_, err := tx.ExecContext(ctx, "SELECT 1")
	return pgtable.Code(err) == inFailedTransaction
}

// lost reports whether a connection no longer reaches its server.
func lost(ctx context.Context, conn *sql.Conn) bool { return conn.PingContext(ctx) != nil }

// again is the delay before a transaction is repeated that failed because of concurrent ones.
const again = 20 * time.Millisecond

// classOf returns the error of a transaction with its class. ofServer says that the server of the
// transaction returned the error, or that the connection to it was lost. Any other error is the
// handler's own, even if it comes from another server: it counts as an attempt.
func classOf(ctx context.Context, err error, ofServer bool) error {
	switch {
	case err == nil, ctx.Err() != nil, !ofServer:
		return err
	case pgtable.Transient(err):
		return outbox.Postponed(err, again)
	case pgtable.Code(err) == "", pgtable.Unwell(err):
		return outbox.Unavailable(err)
	}
	return err
}
