// Package seen is what an inbox keeps in any database (package inbox), but for how it remembers an
// id: that is the hot path, and each store's own.
package seen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Store is an inbox.Store, without Remember and Sweep.
type Store[Tx any] struct {
	DB cold.Database
	// Conn is a caller's transaction, which must be open.
	Conn func(tx Tx) (cold.Conn, error)
}

// query is what the files inbox_*.sql are given.
type query struct {
	Consumer        string
	Key, Owner      uuid.UUID
	Payload         *uuid.UUID
	Answer          []byte
	Keep, Lease     int64 // microseconds
	Now, Until, Cut time.Time
}

// Open is a caller's transaction, to run statements in.
func (s Store[Tx]) Open(tx Tx) (*cold.Tx, error) {
	conn, err := s.Conn(tx)
	if err != nil {
		return nil, err
	}
	return cold.In(s.DB, conn), nil
}

// Register implements inbox.Store.
func (s Store[Tx]) Register(ctx context.Context, tx Tx, consumer string, keep time.Duration) error {
	_, err := s.change(ctx, tx, "inbox_register",
		query{Consumer: consumer, Keep: keep.Microseconds(), Now: time.Now()})
	var server interface{ SQLState() string }
	state := ""
	if errors.As(err, &server) {
		state = server.SQLState()
	}
	switch {
	case state == "42501":
		return fmt.Errorf("%w; run: outbox migrate roles, then GRANT outbox_consumer TO the consumer's login: %w",
			outbox.ErrNotAllowed, err)
	case state == "42P01", err != nil && strings.Contains(err.Error(), "no such table: "): // PostgreSQL, SQLite
		return fmt.Errorf("%w: %w", migration.CheckColumns("outbox_inbox_consumers", nil, nil, nil), err)
	}
	return err
}

// Claim implements inbox.Store.
func (s Store[Tx]) Claim(
	ctx context.Context, tx Tx, id inbox.Key, payload *inbox.Hash, owner uuid.UUID, lease time.Duration,
) (c inbox.Claimed, err error) {
	on, err := s.Open(tx)
	if err != nil {
		return c, err
	}
	now := time.Now()
	q := query{Key: uuid.UUID(id.Hash), Payload: UUID(payload), Owner: owner, Keep: id.Window.Microseconds(),
		Lease: lease.Microseconds(), Now: now, Until: now.Add(lease), Cut: now.Add(-id.Window)}
	var until, done, of, by sqltable.Text
	dst := []any{&by, &until, &done, &c.Answer, &of}
	err = on.One(ctx, "inbox_claim", q, dst...)
	if errors.Is(err, cold.ErrNoRow) {
		err = on.One(ctx, "inbox_claimed", q, dst...)
	}
	if err != nil {
		return c, s.DB.Explain(err)
	}
	c.Owner, _ = sqltable.ParseID(by)
	if at := until.Moment(); at != nil {
		c.Until = *at
	}
	c.Done, c.Payload = !done.Null, Hash(of)
	return c, nil
}

// Finish implements inbox.Store.
func (s Store[Tx]) Finish(ctx context.Context, tx Tx, id inbox.Key, owner uuid.UUID, answer []byte) (bool, error) {
	n, err := s.change(ctx, tx, "inbox_finish",
		query{Key: uuid.UUID(id.Hash), Owner: owner, Answer: answer, Now: time.Now()})
	return n > 0, err
}

// Release implements inbox.Store.
func (s Store[Tx]) Release(ctx context.Context, tx Tx, id inbox.Key, owner uuid.UUID) error {
	_, err := s.change(ctx, tx, "inbox_release", query{Key: uuid.UUID(id.Hash), Owner: owner})
	return err
}

func (s Store[Tx]) change(ctx context.Context, tx Tx, name string, q query) (int, error) {
	on, err := s.Open(tx)
	if err != nil {
		return 0, err
	}
	n, err := on.Change(ctx, name, q)
	return n, s.DB.Explain(err)
}

// UUID is a hash as a column has it.
func UUID(h *inbox.Hash) *uuid.UUID {
	if h == nil {
		return nil
	}
	id := uuid.UUID(*h)
	return &id
}

// Hash is what a column has.
func Hash(t sqltable.Text) *inbox.Hash {
	if t.Null {
		return nil
	}
	id, _ := sqltable.ParseID(t)
	h := inbox.Hash(id)
	return &h
}
