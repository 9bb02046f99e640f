package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

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
func (s inboxStore[Tx]) Remember(ctx context.Context, tx Tx, deliveries []inbox.Delivery) ([]inbox.Known, error) {
	on, err := s.Open(tx)
	if err != nil {
		return nil, err
	}
	var q struct {
		IDs, Intents, Payloads []*uuid.UUID
		Windows, IntentWindows string
	}
	var windows [2][]time.Duration
	for _, d := range deliveries {
		intent := inbox.Key{}
		if q.Intents = append(q.Intents, nil); len(d.IDs) > 1 {
			intent = d.IDs[1]
			q.Intents[len(q.Intents)-1] = seen.UUID(&intent.Hash)
		}
		q.IDs, q.Payloads = append(q.IDs, seen.UUID(&d.IDs[0].Hash)), append(q.Payloads, seen.UUID(d.Payload))
		windows[0], windows[1] = append(windows[0], d.IDs[0].Window), append(windows[1], intent.Window)
	}
	interval := func(d time.Duration) string { return fmt.Sprintf("%d microseconds", d.Microseconds()) }
	q.Windows, q.IntentWindows = arrayOf(windows[0], interval), arrayOf(windows[1], interval)
	known := make([]inbox.Known, 0, len(deliveries))
	err = on.Each(ctx, "inbox_remember", q, func(row cold.Rows) error {
		var which int
		var body sqltable.Text
		err := row.Scan(&which, &body)
		known = append(known, inbox.Known{ID: which - 1, Payload: seen.Hash(body)})
		return err
	})
	return known, err
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
