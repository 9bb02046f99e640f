package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
)

// Queue adds the INSERT of events to a batch of the caller's, to be sent with pool.SendBatch. A
// transaction whose statements are known beforehand is then one round trip, events included.
// PostgreSQL runs a batch that is sent outside a transaction as one transaction, committed at its
// end if every statement succeeded. (Inside one, with tx.SendBatch, it is part of that.)
//
// A batch does not know yet which connection it goes by, so nobody can ask for its encoding: the
// pool must speak UTF-8. [Adapt] sees to that.
//
// Nothing is queued if an event is invalid: the error is then a *FieldError. A second write of an
// id is a no-op; whoever wants outbox.ErrDuplicateEvent has to learn it before the commit and uses
// Write or InTx.
func (w *Writer) Queue(ctx context.Context, batch *pgx.Batch, events ...outbox.Event) error {
	if w.cfg.RefuseDuplicates {
		return errors.New("queue events: RefuseDuplicates needs an answer before the commit, use Write or InTx")
	}
	rows, err := eventrow.Prepare(ctx, w.cfg, events)
	if err != nil || len(rows) == 0 {
		return err
	}
	var inserted []uuid.UUID // nobody asks
	w.insert.queue(batch, rows, &inserted)
	return nil
}
