package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/seen"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/internal/store/sqltx"
)

// NewInbox returns an inbox for transactions of DB.Begin, or of a library on a handle of
// sqlite.Source. The tables are of migration core/006. The transaction must be one that writes
// (BEGIN IMMEDIATE), as those of DB.Begin are: then no copy is handled beside it.
func NewInbox(cfg inbox.Config) (*inbox.Inbox[outbox.SQLTx], error) {
	return newInbox[outbox.SQLTx](cfg)
}

func newInbox[Tx outbox.SQLTx](cfg inbox.Config) (*inbox.Inbox[Tx], error) {
	return inbox.New[Tx](inboxStore[Tx]{seen.Store[Tx]{DB: sqlitecold.DB{},
		Conn: func(tx Tx) (cold.Conn, error) {
			open, err := sqltx.Open(tx)
			return cold.SQL{SQLTx: open}, err
		}}}, cfg)
}

// inboxStore is an inbox.Store.
type inboxStore[Tx outbox.SQLTx] struct{ seen.Store[Tx] }

// inboxQuery is what the files inbox_*.sql are given that are SQLite's own.
type inboxQuery struct {
	Table    string
	Key      uuid.UUID
	Payload  *uuid.UUID
	Now, Cut time.Time
}

func inboxTable(turn int) string { return fmt.Sprintf("outbox_inbox_%d", turn) }

// Remember implements inbox.Store.
func (s inboxStore[Tx]) Remember(ctx context.Context, tx Tx, deliveries []inbox.Delivery) ([]inbox.Known, error) {
	on, err := s.Open(tx)
	if err != nil {
		return nil, err
	}
	turn, now := 0, time.Now()
	if err := on.One(ctx, "inbox_turn", nil, &turn); err != nil {
		return nil, explain(err)
	}
	known := make([]inbox.Known, len(deliveries))
	for i, d := range deliveries {
		if known[i], err = remember(ctx, on, turn, now, d); err != nil {
			return nil, explain(err)
		}
	}
	return known, nil
}

// remember looks into the table that is written to no more, and writes into the other one unless it
// has the id.
func remember(ctx context.Context, on *cold.Tx, turn int, now time.Time, d inbox.Delivery) (inbox.Known, error) {
	for i, id := range d.IDs {
		q := inboxQuery{Table: inboxTable(1 - turn), Key: uuid.UUID(id.Hash), Payload: seen.UUID(d.Payload), Now: now,
			Cut: now.Add(-id.Window)}
		var body sqltable.Text
		err := on.One(ctx, "inbox_seen", q, &body)
		if errors.Is(err, cold.ErrNoRow) {
			q.Table = inboxTable(turn)
			var one int
			if err = on.One(ctx, "inbox_remember", q, &one); err == nil {
				continue
			}
			if errors.Is(err, cold.ErrNoRow) {
				q.Cut = time.Time{}
				err = on.One(ctx, "inbox_seen", q, &body)
			}
		}
		return inbox.Known{ID: i, Payload: seen.Hash(body)}, err
	}
	return inbox.Known{ID: -1}, nil
}

// Sweep implements inbox.Store.
func (s inboxStore[Tx]) Sweep(ctx context.Context, tx Tx) (bool, error) {
	on, err := s.Open(tx)
	if err != nil {
		return false, err
	}
	q, turn := inboxQuery{Now: time.Now()}, 0
	err = on.One(ctx, "inbox_sweep", q, &turn)
	if errors.Is(err, cold.ErrNoRow) {
		return false, nil
	}
	if err == nil {
		q.Table = inboxTable(turn)
		_, err = on.Change(ctx, "inbox_empty", q)
	}
	if err == nil {
		_, err = on.Change(ctx, "inbox_claims", q)
	}
	return err == nil, explain(err)
}
