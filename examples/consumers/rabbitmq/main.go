// Command rabbitmq ships the orders of the queue orders of RabbitMQ. It needs DATABASE_URL and RABBITMQ_URL.
//
// A consumer that dies gives its messages back to the queue at once. Consumers beside it share the queue, and with it
// give up its order, unless the queue has a single active consumer (x-single-active-consumer).
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("RABBITMQ_URL")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, rabbitURL string) error {
	db, err := shipping.Open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := amqp.Dial(rabbitURL)
	if err != nil {
		return errors.New("connect to RABBITMQ_URL") // the client's error may have the password
	}
	defer func() { _ = conn.Close() }()
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	if err := channel.Qos(100, 0, false); err != nil { // messages that may be here unacknowledged
		return fmt.Errorf("limit messages: %w", err)
	}
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	const autoAck, exclusive, noLocal, noWait = false, false, false, false
	messages, err := channel.ConsumeWithContext(ctx, "orders", "", autoAck, exclusive, noLocal, noWait, nil)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	work := context.WithoutCancel(ctx) // what was begun is finished and acknowledged, also after a signal
	for message := range messages {
		if ctx.Err() != nil {
			return nil // the rest goes back into the queue
		}
		if err := shipping.Handle(work, db, message.Body); err != nil {
			return fmt.Errorf("message %s: %w", message.MessageId, err)
		}
		if err := message.Ack(false); err != nil {
			return fmt.Errorf("acknowledge: %w", err)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("receive: %w", <-closed)
}
