package redisstream_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/sink/redisstream"
)

// A sink for a relay that keeps entries for three days, on a client of one's own.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "cache:6379", ContextTimeoutEnabled: true})
	sink, err := redisstream.New(client, redisstream.Config{MaxAge: 72 * time.Hour, Binary: true})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = errors.Join(sink.Close(), client.Close()) }()
	_ = sink // relay.New(database, sink, relay.Config{})
}

// A consumer of a group reads what is new, and acknowledges it when it is done.
func Example_consumer() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "cache:6379"})
	for {
		read, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "workers", Consumer: "worker-1",
			Streams: []string{"order.placed", ">"}, Count: 100}).Result()
		if err != nil {
			log.Fatal(err)
		}
		for _, entry := range read[0].Messages {
			fmt.Println(entry.Values["event"]) // a CloudEvent in JSON
			client.XAck(ctx, "order.placed", "workers", entry.ID)
		}
	}
}
