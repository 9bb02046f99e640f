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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A service removes old ids, those that no broker, replay or backup can bring again.
const tables = `
CREATE TABLE IF NOT EXISTS processed_messages (
  message_id   text        PRIMARY KEY,
  processed_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS shipments (order_id bigint NOT NULL, shipped_at timestamptz NOT NULL DEFAULT now());`

// Open connects to the service's database, and makes its tables there.
func Open(ctx context.Context, databaseURL string) (*pgxpool.Pool, error) {
	db, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if _, err := db.Exec(ctx, tables); err != nil {
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
	if id == "" {
		return errors.New("the message has no id: is it a CloudEvent?")
	}
	remembered, err := tx.Exec(ctx, "INSERT INTO processed_messages (message_id) VALUES ($1) ON CONFLICT DO NOTHING", id)
	if err != nil {
		return fmt.Errorf("remember message %s: %w", id, err)
	}
	if remembered.RowsAffected() == 0 {
		return nil // a copy
	}
	return ship(ctx, tx, data)
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
