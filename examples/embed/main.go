// Command embed is a service with its relay inside. It places an order, writes the event about it
// in the same transaction, and delivers it to Redis from its own process, until Ctrl-C. It needs
// OUTBOX_DATABASE_URL and OUTBOX_SINK; `outbox tail order.placed` shows the event arriving.
//
// It guarantees what package outbox does, and not that a service should do this. Any number of
// instances may run it, since they share the lanes. But a relay of its own (the command outbox
// relay) is deployed, measured and restarted without the service.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Getenv("OUTBOX_DATABASE_URL"), os.Getenv("OUTBOX_SINK")); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, databaseURL, redisURL string) (err error) {
	if err := migrations.Up(ctx, databaseURL, "core"); err != nil {
		return err
	}
	db, err := postgres.Connect(ctx, databaseURL, postgres.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	sink, err := redispubsub.Open(ctx, redisURL, redispubsub.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close() }()
	r, err := relay.New(db, sink, relay.Config{Retention: outbox.Retention{After: 24 * time.Hour}})
	if err != nil {
		return err
	}

	var group errgroup.Group
	group.Go(func() error { return r.Run(ctx) }) // finishes its batch when ctx ends
	group.Go(func() error { return placeOrder(ctx, databaseURL, r) })
	return group.Wait()
}

// placeOrder is what the service is there for. An error of it does not stop the relay.
func placeOrder(ctx context.Context, databaseURL string, r *relay.Relay) error {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx,
		"CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, total int NOT NULL)"); err != nil {
		return fmt.Errorf("make table: %w", err)
	}
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	if err != nil {
		return err
	}
	return writer.InTx(ctx, pool, func(tx pgx.Tx) ([]outbox.Event, error) {
		var id int64
		if err := tx.QueryRow(ctx, "INSERT INTO orders (total) VALUES (42) RETURNING id").Scan(&id); err != nil {
			return nil, fmt.Errorf("place order: %w", err)
		}
		placed, err := outbox.NewEvent("order.placed", map[string]int64{"order": id, "total": 42})
		placed.AggregateType, placed.AggregateID = "Order", fmt.Sprint(id)
		return []outbox.Event{placed}, err
	}, r.Wake)
}
