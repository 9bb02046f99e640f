// Command redispubsub ships the orders that are published on a channel of Redis. It needs DATABASE_URL and REDIS_URL.
//
// Redis Pub/Sub knows no acknowledgement and keeps nothing: what is published while no consumer is subscribed is
// missed. Whoever must not miss anything takes Redis Streams.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("REDIS_URL")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, redisURL string) error {
	db, err := shipping.Open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return fmt.Errorf("parse REDIS_URL: %w", err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	subscription := client.Subscribe(ctx, "order.placed")
	// It ends the ReceiveMessage below, which does not look at ctx while it waits.
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })()

	// Not subscription.Channel(): it throws messages away that wait there for too long.
	work := context.WithoutCancel(ctx) // what was begun is finished, also after a signal
	for {
		message, err := subscription.ReceiveMessage(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if err := shipping.Handle(work, db, []byte(message.Payload)); err != nil {
			return err
		}
	}
}
