package kafka_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/source"
	"github.com/outboxrelay/outbox/source/kafka"
	"github.com/outboxrelay/outbox/store/postgres"
)

// Messages of a topic become events of a log, which a group reads.
func Example() {
	run := func(ctx context.Context, brokers []string, pool *pgxpool.Pool) error {
		from, err := kafka.New(kafka.Config{Brokers: brokers, Group: "billing", Topics: []string{"order.placed"}})
		if err != nil {
			return err
		}
		writer, err := postgres.NewWriter(outbox.WriterConfig{Table: "outbox_log", Strict: true})
		if err != nil {
			return err
		}
		return source.Run(ctx, from, postgres.Transactions(pool), writer.Write, source.Config{Name: "orders"})
	}
	fmt.Println(run != nil)
	// Output: true
}
