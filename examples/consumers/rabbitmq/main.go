// Command rabbitmq ships the orders of the queue orders of RabbitMQ. It needs DATABASE_URL and
// RABBITMQ_URL. Of several processes one receives, and the others wait for its end.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
	"github.com/outboxrelay/outbox/source/rabbitmq"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("RABBITMQ_URL")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, rabbitURL string) error {
	from, err := rabbitmq.New(rabbitmq.Config{URL: rabbitURL, Queue: "orders"})
	if err != nil {
		return err
	}
	defer from.Close()
	return shipping.Run(ctx, databaseURL, from)
}
