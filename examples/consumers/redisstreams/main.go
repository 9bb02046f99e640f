// Command redisstreams ships the orders of a stream of Redis, as a consumer of the group shipping. It needs
// DATABASE_URL and REDIS_URL.
//
// A consumer that comes back under its name begins with what it has not acknowledged. Consumers beside it share the
// stream, and with it give up the order of its entries.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
)

const stream, group = "order.placed", "shipping"

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
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	err = client.XGroupCreateMkStream(ctx, stream, group, "0").Err()
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") { // it is there already
		return fmt.Errorf("make group: %w", err)
	}
	// The name must be the same after a restart. XAUTOCLAIM takes over from consumers that do not come back.
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name consumer: %w", err)
	}
	work := context.WithoutCancel(ctx)   // what was begun is finished and acknowledged, also after a signal
	for from := "0"; ctx.Err() == nil; { // "0": what this consumer has not acknowledged; ">": what is new
		entries, err := read(ctx, client, name, from)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			from = ">"
		}
		for _, entry := range entries {
			if err := handle(work, db, client, entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// read waits for a second at most, so that the consumer notices its end.
func read(ctx context.Context, client *redis.Client, name, from string) ([]redis.XMessage, error) {
	read, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: name,
		Streams: []string{stream, from}, Count: 100, Block: time.Second}).Result()
	if errors.Is(err, redis.Nil) || ctx.Err() != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return read[0].Messages, nil
}

func handle(ctx context.Context, db *pgxpool.Pool, client *redis.Client, entry redis.XMessage) error {
	if message, whole := entry.Values["event"].(string); !whole {
		log.Printf("entry %s is lost: the stream was trimmed before it was handled", entry.ID)
	} else if err := shipping.Handle(ctx, db, []byte(message)); err != nil {
		return fmt.Errorf("entry %s: %w", entry.ID, err)
	}
	if err := client.XAck(ctx, stream, group, entry.ID).Err(); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	return nil
}
