// Command nats ships the orders of a stream of NATS JetStream, as the durable consumer shipping. It needs DATABASE_URL
// and NATS_URL, and the stream ORDERS with the subject order.placed.
//
// Any number of processes may run it. One message is on its way at a time, which keeps the order even when a process
// dies: the others wait until the message has come again.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("NATS_URL")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, natsURL string) error {
	db, err := shipping.Open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := nats.Connect(natsURL)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{
		Durable:       "shipping",
		FilterSubject: "order.placed",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       5 * time.Second, // then an unacknowledged message comes again: longer than any work takes
		MaxAckPending: 1,
	})
	if err != nil {
		return fmt.Errorf("make consumer: %w", err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	defer messages.Stop()
	work := context.WithoutCancel(ctx) // what was begun is finished and acknowledged, also after a signal
	for {
		message, err := messages.Next(jetstream.NextContext(ctx))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if err := shipping.Handle(work, db, message.Data()); err != nil {
			return err
		}
		// The server confirms it. Ack alone might get lost, and the message would come again.
		if err := message.DoubleAck(work); err != nil {
			return fmt.Errorf("acknowledge: %w", err)
		}
	}
}
