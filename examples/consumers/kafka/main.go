// Command kafka ships the orders of a topic of Kafka, as a member of the group shipping. It needs
// DATABASE_URL and KAFKA_BROKERS (host1:9092,host2:9092). Any number of processes share the
// partitions, each of which keeps its order.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
	"github.com/outboxrelay/outbox/source/kafka"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("KAFKA_BROKERS")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, brokers string) error {
	// A member that comes back under its name has its partitions at once, and the others keep
	// theirs.
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	from, err := kafka.New(kafka.Config{Brokers: strings.Split(brokers, ","), Group: "shipping",
		Topics: []string{"order.placed"}, Options: []kgo.Opt{kgo.InstanceID(name)}})
	if err != nil {
		return err
	}
	defer from.Close()
	return shipping.Run(ctx, databaseURL, from)
}
