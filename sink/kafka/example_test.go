package kafka_test

import (
	"context"
	"fmt"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink/kafka"
)

func ExampleOpen() {
	ctx := context.Background()
	sink, err := kafka.Open(ctx, "kafkas://relay:secret@broker-1:9093,broker-2:9093?sasl=scram-sha-512",
		kafka.Config{Binary: true, Create: &kafka.Creation{Partitions: 12, Replication: 3}})
	if err != nil {
		fmt.Println(err) // of class outbox.ClassUnavailable: the relay would try again
		return
	}
	defer func() { _ = sink.Close() }()
	var _ outbox.Sink = sink // what relay.New takes
}
