// Command nats ships the orders of a stream of NATS JetStream, as the durable consumer shipping. It
// needs DATABASE_URL and NATS_URL, and the stream ORDERS with the subject order.placed. Any number
// of processes may run it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
	"github.com/outboxrelay/outbox/source/natsjs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("NATS_URL")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, natsURL string) error {
	conn, err := nats.Connect(natsURL, nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	from, err := natsjs.New(js, natsjs.Config{Stream: "ORDERS", Durable: "shipping",
		Subjects: []string{"order.placed"}, AckWait: 5 * time.Second})
	if err != nil {
		return err
	}
	defer from.Close()
	return shipping.Run(ctx, databaseURL, from)
}
