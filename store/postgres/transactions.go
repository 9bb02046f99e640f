package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Transactions are those of a pool, for the handlers of a group (package inbox/group).
func Transactions(pool *pgxpool.Pool) inbox.Transactions[pgx.Tx] {
	return inbox.Transactions[pgx.Tx]{
		Inbox:       newInbox[pgx.Tx],
		Connections: int(pool.Stat().MaxConns()),
		SetTenant:   func(ctx context.Context, tx pgx.Tx, app uuid.UUID) error { return SetTenant(ctx, tx, app) },
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
	own, left := conn.Conn(), false
	defer func() {
		if conn.Release(); left {
			_ = own.Close(ctx)
		}
	}()
	var begin pgx.Batch
	begin.BeginTx(pgx.TxOptions{CommitQuery: commitOwn})
	begin.Queue("SET LOCAL outbox.handling = 'on'")
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
	leave := func() { conn.Hijack(); left = true }
	if err := within(ctx, own, leave, func() error { return fn(tx, known) }); err != nil {
		failed := pgtable.Code(err) != "" && own.PgConn().TxStatus() == inFailed
		return classOf(ctx, err, failed || own.IsClosed() && !ofContext(err))
	}
	if ended(own) {
		return errEnded
	}
	if own.PgConn().TxStatus() == inFailed { // commitOwn would fail, and not say why
		return pgx.ErrTxCommitRollback
	}
	err = tx.Commit(ctx)
	if code := pgtable.Code(err); code == undefinedObject || code == invalidText {
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	return commitError(ctx, err, own.IsClosed())
}

// commitOwn commits the transaction that transact began, and fails in every other transaction. It
// reads the setting outbox.handling, which transact sets until the end of its transaction. A
// handler that sends "ROLLBACK; BEGIN" ends that transaction, and with it the row that records the
// event as handled.
const (
	commitOwn       = "SELECT pg_catalog.current_setting('outbox.handling')::bool; COMMIT"
	undefinedObject = "42704"
	invalidText     = "22P02"

	inFailed = 'E' // the status of a transaction that accepts nothing but its end
)

// within runs fn, which works on a connection (nil: that of another driver). If ctx ends before fn
// returns, the server ends the transaction: the connection is closed and its statement canceled.
// leave then gives the connection's place in the pool to others. fn may go on; its statements fail.
func within(ctx context.Context, conn *pgx.Conn, leave func(), fn func() error) error {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		if conn == nil {
			leave()
			return
		}
		_ = conn.PgConn().Conn().Close() // of all methods of conn, only these two may be called beside fn
		leave()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = conn.PgConn().CancelRequest(limited) // the server notices the end of a connection after its statement
		backoff.Wait(limited, 200*time.Millisecond)
		_ = conn.PgConn().CancelRequest(limited) // that of a statement which was on its way, too
	})
	defer func() {
		if !stop() {
			<-done
		}
	}()
	return fn()
}

// errEnded counts as an attempt. The server accepts a COMMIT outside a transaction, so without this
// error the event would count as handled although its effect may have been rolled back.
var errEnded = errors.New("the handler committed or rolled back its transaction; return nil to commit, " +
	"an error to roll back")

// ended reports whether a connection has no open transaction. pgx does not notice a ROLLBACK or
// COMMIT that a handler sends as a statement.
func ended(conn *pgx.Conn) bool {
	const idle = 'I'
	return !conn.IsClosed() && conn.PgConn().TxStatus() == idle
}

// commitError returns the error of a commit with its class. If the connection was lost, the
// transaction may be committed: the database, and not the handler, is the reason that this is
// unknown.
func commitError(ctx context.Context, err error, lost bool) error {
	if err != nil && lost && pgtable.Code(err) == "" {
		return outbox.Unavailable(err)
	}
	return classOf(ctx, err, pgtable.Code(err) != "")
}

// SQLTransactions is Transactions for database/sql. If a handler sends "ROLLBACK; BEGIN" as one
// statement, Transactions counts a failed attempt. SQLTransactions does not notice it: the event
// counts as handled, although its effect was rolled back. The check would take two more round trips
// for each event.
func SQLTransactions(db *sql.DB) inbox.Transactions[*sql.Tx] {
	return inbox.Transactions[*sql.Tx]{
		Inbox:       newInbox[*sql.Tx],
		Connections: db.Stats().MaxOpenConnections,
		SetTenant:   func(ctx context.Context, tx *sql.Tx, app uuid.UUID) error { return SetTenant(ctx, tx, app) },
		Do: func(ctx context.Context, fn func(*sql.Tx) error) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return classOf(ctx, err, true)
			}
			defer func() { _ = conn.Close() }() // returns it to the pool
			var own *pgx.Conn
			_ = conn.Raw(func(c any) error {
				if c, ok := c.(interface{ Conn() *pgx.Conn }); ok {
					own = c.Conn()
				}
				return nil
			})
			leave := func() {
				_ = conn.Raw(func(any) error { // waits for a statement that runs
					if own != nil {
						_ = own.Close(ctx)
					}
					return driver.ErrBadConn // the pool drops the connection
				})
			}
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return classOf(ctx, err, true)
			}
			defer func() { _ = tx.Rollback() }() // of what fn has left; after a commit it does nothing
			if err := within(ctx, own, leave, func() error { return fn(tx) }); err != nil {
				failed := pgtable.Code(err) != "" && aborted(ctx, tx)
				_ = tx.Rollback() // lost would wait for a transaction that is open
				return classOf(ctx, err, failed || lost(ctx, conn) && !ofContext(err))
			}
			if own != nil && ended(own) {
				return errEnded
			}
			err = tx.Commit()
			return commitError(ctx, err, err != nil && lost(ctx, conn))
		},
	}
}

// aborted reports whether a statement of tx failed: PostgreSQL then refuses all others.
func aborted(ctx context.Context, tx *sql.Tx) bool {
	const inFailedTransaction = "25P02"
	_, err := tx.ExecContext(ctx, "SELECT 1")
	return pgtable.Code(err) == inFailedTransaction
}

// ofContext reports whether a handler returned the end of a context. If it was one of its own, pgx
// has closed the connection for it, and the server is not the reason.
func ofContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
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
