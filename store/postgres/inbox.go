package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/seen"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// NewInbox returns an inbox for transactions of pgx, and NewSQLInbox one for those of database/sql and what is built on
// it. The tables are of migration core/006; the role needs the rights of outbox_consumer.
//
// In a transaction that is not read committed, a copy that was handled since it began is an error that a retry cures
// (40001), as with any other row.
func NewInbox(cfg inbox.Config) (*inbox.Inbox[pgx.Tx], error) { return newInbox[pgx.Tx](cfg) }

// NewSQLInbox is NewInbox for transactions of database/sql.
func NewSQLInbox(cfg inbox.Config) (*inbox.Inbox[outbox.SQLTx], error) {
	return newInbox[outbox.SQLTx](cfg)
}

func newInbox[Tx any](cfg inbox.Config) (*inbox.Inbox[Tx], error) {
	return inbox.New[Tx](inboxStore[Tx]{seen.Store[Tx]{DB: anyDriver{},
		Conn: func(tx Tx) (cold.Conn, error) { return anyTx(tx) }}}, cfg)
}

// inboxStore is an inbox.Store.
type inboxStore[Tx any] struct{ seen.Store[Tx] }

// Remember implements inbox.Store, by a function of the database: a lock and what is looked up after it in one round
// trip, in any language.
func (s inboxStore[Tx]) Remember(
	ctx context.Context, tx Tx, ids []inbox.Key, payload *inbox.Hash,
) (known int, of *inbox.Hash, err error) {
	on, err := s.Open(tx)
	if err != nil {
		return 0, nil, err
	}
	var body sqltable.Text
	err = on.One(ctx, "inbox_remember", queryOf(ids, payload), &known, &body)
	return known - 1, seen.Hash(body), err
}

// RememberEach is Remember for each of many ids by itself, in one round trip.
func (s inboxStore[Tx]) RememberEach(ctx context.Context, tx Tx, ids []inbox.Key) (fresh []bool, err error) {
	on, err := s.Open(tx)
	if err != nil {
		return nil, err
	}
	fresh = make([]bool, 0, len(ids))
	err = on.Each(ctx, "inbox_remember_each", queryOf(ids, nil), func(row cold.Rows) error {
		var known int
		err := row.Scan(&known)
		fresh = append(fresh, known == 0)
		return err
	})
	return fresh, err
}

// inboxQuery is what the files inbox_remember*.sql are given.
type inboxQuery struct {
	Keys    []uuid.UUID
	Payload *uuid.UUID
	Windows string
}

func queryOf(ids []inbox.Key, payload *inbox.Hash) inboxQuery {
	q := inboxQuery{Keys: make([]uuid.UUID, len(ids)), Payload: seen.UUID(payload)}
	for i, id := range ids {
		q.Keys[i] = uuid.UUID(id.Hash)
	}
	q.Windows = arrayOf(ids, func(k inbox.Key) string { return fmt.Sprintf("%d microseconds", k.Window.Microseconds()) })
	return q
}

// Sweep implements inbox.Store.
func (s inboxStore[Tx]) Sweep(ctx context.Context, tx Tx) (ended bool, err error) {
	on, err := s.Open(tx)
	if err != nil {
		return false, err
	}
	err = on.One(ctx, "inbox_sweep", nil, &ended)
	var busy interface{ SQLState() string }
	if errors.As(err, &busy) && busy.SQLState() == pgtable.LockNotAvailable {
		return false, fmt.Errorf("%w: %w", inbox.ErrBusy, err)
	}
	return ended, err
}
