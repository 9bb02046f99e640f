package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
)

// Waker is told that new events were committed: a Notifier (relays in other processes) or an outbox.Relay (in this one). Wake must not block.
type Waker interface{ Wake() }

// InTx runs fn in a transaction, writes the events that it returns, commits, and wakes the relay. If fn fails or an event is
// invalid everything is rolled back.
//
// The INSERT travels with the COMMIT in one round trip (measured at 16 writers: 0.89 of the rate without an outbox, against 0.75 as a
// round trip of its own), which is why fn returns its events instead of writing them.
//
// An error from the connection during COMMIT leaves the outcome unknown, as with any commit: a producer that repeats it must
// choose the event ids itself, then the second write is a no-op.
func (w *Writer) InTx(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) ([]outbox.Event, error), wake ...Waker) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	committed := false
	defer func() {
		if !committed {
			// A pipeline that failed has left the transaction open, one whose COMMIT failed has not: only the former takes a ROLLBACK.
			if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
				_ = tx.Rollback(context.WithoutCancel(ctx)) // the first error is the one to report; a broken connection is discarded
			}
		}
	}()
	events, err := fn(tx)
	if err != nil {
		return err
	}
	if err := w.writeAndCommit(ctx, conn.Conn(), tx, events); err != nil {
		return err
	}
	committed = true
	if len(events) > 0 {
		for _, k := range wake {
			k.Wake()
		}
	}
	return nil
}

func (w *Writer) writeAndCommit(ctx context.Context, conn *pgx.Conn, tx pgx.Tx, events []outbox.Event) error {
	rows, err := w.Prepare(ctx, events)
	if err != nil {
		return err
	}
	cfg := w.Config()
	if cfg.OnDuplicate == outbox.RefuseDuplicate && len(rows) > 0 {
		// The answer must be known before the commit.
		if err := w.Write(ctx, tx, events...); err != nil {
			return err
		}
		rows = nil
	}
	if len(rows) == 0 {
		if err := tx.Commit(ctx); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		return nil
	}
	var batch pgx.Batch
	var inserted []uuid.UUID
	w.insert.queue(&batch, rows, cfg.Order, &inserted)
	var tag string
	batch.Queue("COMMIT").Exec(func(t pgconn.CommandTag) error {
		tag = t.String()
		return nil
	})
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("write %d events and commit: %w", len(rows), err)
	}
	if tag != "COMMIT" { // the server answers ROLLBACK, without an error, if fn ignored one of its own
		return errors.Join(pgx.ErrTxCommitRollback, errors.New("an error inside the transaction was ignored"))
	}
	return nil
}
