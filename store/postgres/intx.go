package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
)

// InTx runs fn in a transaction, writes the events that it returns, commits, and wakes the relay.
// If fn fails or an event is invalid everything is rolled back. Each wake is told the table. It is
// the Wake of a Notifier (relays in other processes) or of an relay.Relay (in this one), and must
// not block.
//
// The INSERT travels with the COMMIT in one round trip, where Write has one of its own
// (docs/benchmarks.md). That is why fn returns its events instead of writing them.
//
// An error from the connection during COMMIT leaves the outcome unknown, as with any commit. A
// producer that repeats it must choose the event ids itself; then the second write is a no-op.
func (w *Writer) InTx(
	ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) ([]outbox.Event, error), wake ...func(table string),
) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		// Nothing is open after a COMMIT, failed or not. A connection on which ROLLBACK fails as
		// well is broken: Release discards it.
		if conn.Conn().PgConn().TxStatus() != 'I' {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			_ = tx.Rollback(ctx)
		}
	}()
	events, err := fn(tx)
	if err != nil {
		return err
	}
	if err := w.writeAndCommit(ctx, conn.Conn(), tx, events); err != nil {
		return err
	}
	if len(events) > 0 {
		for _, tell := range wake {
			tell(w.insert.table)
		}
	}
	return nil
}

// rollbackTimeout bounds the wait for a server that does not answer. Past it the connection is
// closed, and the server rolls back itself.
const rollbackTimeout = 5 * time.Second

func (w *Writer) writeAndCommit(ctx context.Context, conn *pgx.Conn, tx pgx.Tx, events []outbox.Event) error {
	rows, err := eventrow.Prepare(ctx, w.cfg, events)
	if err != nil {
		return err
	}
	switch conn.PgConn().TxStatus() {
	case 'E': // COMMIT would be answered with ROLLBACK, and without an error
		return fmt.Errorf("commit: an error inside the transaction was ignored: %w", pgx.ErrTxCommitRollback)
	case 'I': // the INSERT would be a transaction of its own
		return errors.New("commit: fn has ended the transaction itself")
	}
	var batch pgx.Batch
	var inserted []uuid.UUID
	if len(rows) > 0 {
		if err := checkEncoding(conn); err != nil {
			return fmt.Errorf("write %d events: %w", len(rows), err)
		}
		w.insert.queue(&batch, rows, &inserted)
	}
	if w.cfg.RefuseDuplicates && !eventrow.Drawn(rows) {
		// The answer must be known before the commit: a round trip more.
		if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
			return fmt.Errorf("write %d events: %w", len(rows), w.insert.explain(err))
		}
		if err := eventrow.CheckInserted(w.cfg, rows, inserted); err != nil {
			return err
		}
		batch = pgx.Batch{}
	}
	batch.Queue("COMMIT")
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("write %d events and commit: %w", len(rows), w.insert.explain(err))
	}
	return nil
}
