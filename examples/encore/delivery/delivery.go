// Package delivery is the part of the example that needs nothing of Encore, so that it can be run
// and tested without Encore's command. It has the order and its event in one transaction, and a
// relay that publishes to a function.
package delivery

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// Place inserts an order, and the event about it, in the caller's transaction.
func Place(ctx context.Context, tx *sql.Tx, total int64) (id int64, err error) {
	if err := tx.QueryRowContext(ctx, "INSERT INTO orders (total) VALUES ($1) RETURNING id", total).Scan(&id); err != nil {
		return 0, fmt.Errorf("place order: %w", err)
	}
	writer, err := postgres.NewSQLWriter(outbox.WriterConfig{Source: "orders"})
	if err != nil {
		return 0, err
	}
	placed, err := outbox.NewEvent("order.placed", map[string]int64{"order": id, "total": total})
	if err != nil {
		return 0, err
	}
	placed.AggregateType, placed.AggregateID = "Order", fmt.Sprint(id)
	if err := writer.Write(ctx, tx, placed); err != nil {
		return 0, fmt.Errorf("write event: %w", err)
	}
	return id, nil
}

// Message is what is published of an event.
type Message struct{ ID, Topic, Payload string }

// Run delivers the events of the pool's database to publish until ctx ends. An error of publish is
// tried again later.
func Run(ctx context.Context, pool *pgxpool.Pool, publish func(context.Context, Message) error) error {
	sink := outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		return publish(ctx, Message{d.ID.String(), d.Topic, string(d.Payload)})
	})
	r, err := relay.New(postgres.NewDB(pool), sink, relay.Config{})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}
