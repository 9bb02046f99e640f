// Command postgres ships the orders of a table that the PostgreSQL sink fills, in the service's own
// database. It needs DATABASE_URL, and the table order_events. A row is deleted once it is in the
// service's log.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/examples/consumers/shipping"
	"github.com/outboxrelay/outbox/source"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		defer pool.Close()
		err = shipping.Run(ctx, os.Getenv("DATABASE_URL"), table{pool})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// table is a source.Source. Several processes read the same rows, and the guard leaves copies out.
type table struct{ *pgxpool.Pool }

// Receive implements source.Source.
func (t table) Receive(ctx context.Context) (batch source.Batch, err error) {
	var positions []int64
	for len(positions) == 0 && err == nil && ctx.Err() == nil {
		rows, _ := t.Query(ctx, `SELECT position, event_id::text, coalesce(aggregate_id, ''), occurred_at, payload
			FROM order_events ORDER BY position LIMIT 100`) // ForEachRow has its error
		position, id := int64(0), ""
		m := source.Message{Channel: "order.placed"}
		_, err = pgx.ForEachRow(rows, []any{&position, &id, &m.Key, &m.Time, &m.Body}, func() error {
			m.Place, m.Attributes = fmt.Sprint("order_events/", position), map[string]string{"id": id}
			batch.Messages, positions = append(batch.Messages, m), append(positions, position)
			return nil
		})
		if len(positions) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}
	batch.Ack = func(ctx context.Context) error {
		_, err := t.Exec(ctx, "DELETE FROM order_events WHERE position = ANY ($1)", positions)
		return err
	}
	return batch, err
}
