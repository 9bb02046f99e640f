// Command redispubsub ships the orders that are published on a channel of Redis. It needs
// DATABASE_URL and REDIS_URL.
//
// Redis Pub/Sub knows no acknowledgement and keeps nothing: what is published while no consumer is
// subscribed is missed. So the library has no source of it, and this is how one is made. Whoever
// must not miss anything takes Redis Streams.
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
	"github.com/outboxrelay/outbox/source"
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
	from := channel{client.Subscribe(ctx, "order.placed")}
	// It ends ReceiveMessage, which does not look at ctx.
	defer context.AfterFunc(ctx, func() { _ = from.Close() })()
	return shipping.Run(ctx, databaseURL, from)
}

// channel is a source.Source. It has no PubSub.Channel, which throws away what waits there for too
// long.
type channel struct{ *redis.PubSub }

// Receive implements source.Source: a message at a time, with nothing to acknowledge.
func (c channel) Receive(ctx context.Context) (source.Batch, error) {
	message, err := c.ReceiveMessage(ctx)
	if err != nil {
		return source.Batch{}, err
	}
	return source.Batch{Messages: []source.Message{{Channel: message.Channel, Body: []byte(message.Payload)}},
		Ack: func(context.Context) error { return nil }}, nil
}
