// Command redisstreams ships the orders of a stream of Redis, as the group shipping. It needs
// DATABASE_URL and REDIS_URL. Any number of processes may run it.
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
	"github.com/outboxrelay/outbox/source/redisstream"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("REDIS_URL")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, redisURL string) error {
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return fmt.Errorf("parse REDIS_URL: %w", err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	from, err := redisstream.New(client, redisstream.Config{Stream: "order.placed", Group: "shipping"})
	if err != nil {
		return err
	}
	return shipping.Run(ctx, databaseURL, from)
}
