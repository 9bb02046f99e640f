package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// Transactions are those of a database that has effects. postgres.Transactions,
// postgres.SQLTransactions and sqlite.Transactions make them.
type Transactions[Tx any] struct {
	// Do runs fn in a transaction, which it commits if fn returns nil and rolls back otherwise. If
	// ctx ends before fn returns, the transaction ends, and its connection's place in the pool is
	// free again. An error of the database's being away is outbox.Unavailable, one that a retry
	// cures at once outbox.Postponed. An error that fn returns for another reason stays as it is.
	Do func(ctx context.Context, fn func(tx Tx) error) error
	// Remembering is Do in a transaction that has remembered deliveries first, as Store.Remember
	// does. nil: those of the database cannot begin and remember in one round trip.
	Remembering func(ctx context.Context, deliveries []Delivery, fn func(tx Tx, known []Known) error) error
	// Connections is how many transactions can be open at a time. 0: no limit is known.
	Connections int
	// SetTenant has the rest of tx speak for an application, a row of table apps: its row-level
	// security applies. nil: nothing is set.
	SetTenant func(ctx context.Context, tx Tx, app uuid.UUID) error
	// Inbox returns what remembers ids in them.
	Inbox func(cfg Config) (*Inbox[Tx], error)
}

// Remember runs fn in a transaction that has remembered deliveries, with the inbox's answers in
// their order, and ends it as Do does: what fn returns nil for is remembered. Where the database
// can, this is one round trip with the transaction's beginning.
func (t Transactions[Tx]) Remember(
	ctx context.Context, in *Inbox[Tx], ids []ID, fn func(tx Tx, answers []Answer) error,
) error {
	if t.Remembering == nil {
		return t.Do(ctx, func(tx Tx) error {
			answers, err := in.Remember(ctx, tx, ids...)
			if err != nil {
				return err
			}
			return fn(tx, answers)
		})
	}
	deliveries, err := in.deliveries(ids)
	if err != nil {
		return err
	}
	return t.Remembering(ctx, deliveries, func(tx Tx, known []Known) error {
		return fn(tx, answersOf(ids, deliveries, known))
	})
}

// registerEvery is how long to wait for a database that is away.
const registerEvery = time.Second

// Register registers an inbox, and whatever else begin does before it. While the database is away
// it waits, and hands the first error to away. It is nil at the end of ctx.
func (t Transactions[Tx]) Register(
	ctx context.Context, in *Inbox[Tx], begin func() error, away func(error),
) error {
	for waiting := false; ; waiting = true {
		err := begin()
		if err == nil {
			err = t.Do(ctx, func(tx Tx) error { return in.Register(ctx, tx) })
		}
		class, _ := outbox.Classify(err)
		switch {
		case err == nil, ctx.Err() != nil:
			return nil
		case class != outbox.ClassUnavailable:
			return err
		case !waiting:
			away(err)
		}
		backoff.Wait(ctx, registerEvery)
	}
}

// sweepEvery is how often to look whether ids are old enough to be forgotten.
const sweepEvery = time.Minute

// Sweep sweeps an inbox once a minute until ctx ends. It hands the first error of several in a row
// to failed.
func (t Transactions[Tx]) Sweep(ctx context.Context, in *Inbox[Tx], failed func(error)) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := t.Do(ctx, func(tx Tx) error {
			_, err := in.Sweep(ctx, tx)
			return err
		})
		if err != nil && !failing && ctx.Err() == nil && !errors.Is(err, ErrBusy) {
			failed(err)
		}
		failing = err != nil
	}
}
