// Package shipping is the service behind the consumers: it ships the order of an event, once an event.
//
// The work and the id of its message are committed in one transaction of the service's own database. So a copy finds
// the id of its message and does nothing, whenever it comes and whatever has crashed. It holds for as long as ids are
// kept.
package shipping

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

// remembered is asked by all consumers. Kafka keeps messages for a week here, and nobody replays older events.
var remembered, errConfig = postgres.NewInbox(inbox.Config{Consumer: "shipping",
	Copies: map[string]time.Duration{"retention of the topic": 7 * 24 * time.Hour}})

// Open connects to the service's database, which outbox migrate up was run on, and makes a table of its own there.
func Open(ctx context.Context, databaseURL string) (*pgxpool.Pool, error) {
	db, err := pgxpool.New(ctx, databaseURL)
	if err = errors.Join(err, errConfig); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	const table = "CREATE TABLE IF NOT EXISTS shipments (order_id bigint NOT NULL, shipped_at timestamptz DEFAULT now())"
	if _, err = db.Exec(ctx, table); err == nil {
		err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return remembered.Register(ctx, tx) })
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("make tables: %w", err)
	}
	return db, nil
}

// Handle ships the order of a message, a CloudEvent in JSON. The message may be acknowledged once Handle returns nil.
func Handle(ctx context.Context, db *pgxpool.Pool, message []byte) error {
	var event struct {
		ID   string
		Data json.RawMessage
	}
	if err := json.Unmarshal(message, &event); err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return HandleIn(ctx, tx, event.ID, event.Data) })
}

// HandleIn is Handle within a transaction of the caller. A copy that comes while the first message is being handled
// waits here for that one's end.
func HandleIn(ctx context.Context, tx pgx.Tx, id string, data []byte) error {
	_, err := remembered.Once(ctx, tx, inbox.ID{Event: id, Payload: data}, func() error { return ship(ctx, tx, data) })
	return err
}

// ship is what the service is there for.
func ship(ctx context.Context, tx pgx.Tx, data []byte) error {
	var placed struct{ Order int64 }
	if err := json.Unmarshal(data, &placed); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO shipments (order_id) VALUES ($1)", placed.Order); err != nil {
		return fmt.Errorf("ship order %d: %w", placed.Order, err)
	}
	return nil
}
