// Command kafka ships the orders of a topic of Kafka, as a member of the group shipping. It needs DATABASE_URL and
// KAFKA_BROKERS (host1:9092,host2:9092).
//
// Members share the partitions, each of which keeps its order. Offsets are committed after the work of what was polled,
// so a member that dies leaves one poll at most to be read again.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL"), os.Getenv("KAFKA_BROKERS")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL, brokers string) error {
	db, err := shipping.Open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	// A member that comes back under its name has its partitions at once, and the others keep theirs.
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name member: %w", err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.ConsumerGroup("shipping"), kgo.InstanceID(name),
		kgo.ConsumeTopics("order.placed"),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), // of a group that is new
		kgo.DisableAutoCommit(),                           // which would acknowledge what is not done
		kgo.BlockRebalanceOnPoll(),                        // no partition is taken away before its offsets are committed
	)
	if err != nil {
		return fmt.Errorf("configure client: %w", err)
	}
	defer client.CloseAllowingRebalance()
	work := context.WithoutCancel(ctx) // what was begun is finished and acknowledged, also after a signal
	for {
		polled := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := polled.Err(); err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		for record := range polled.RecordsAll() {
			if err := shipping.Handle(work, db, record.Value); err != nil {
				return fmt.Errorf("partition %d, offset %d: %w", record.Partition, record.Offset, err)
			}
		}
		if err := client.CommitUncommittedOffsets(work); err != nil {
			return fmt.Errorf("commit offsets: %w", err)
		}
		client.AllowRebalance()
	}
}
