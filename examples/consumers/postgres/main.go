// Command postgres ships the orders of a table that the PostgreSQL sink fills, in the service's own database. It needs
// DATABASE_URL, and the table order_events.
//
// A row is deleted in the transaction of its work: that is its acknowledgement. The sink's primary key refuses copies
// while the row is there; after that the id of the message does.
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
)

// take has no SKIP LOCKED: a second reader waits for the first one, so that each key keeps its order.
const take = `
WITH taken AS (
  DELETE FROM order_events
   WHERE position IN (SELECT position FROM order_events ORDER BY position LIMIT 100 FOR UPDATE)
  RETURNING position, event_id, payload)
SELECT event_id::text, payload FROM taken ORDER BY position`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Getenv("DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, databaseURL string) error {
	db, err := shipping.Open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		handled, err := next(ctx, db)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if handled == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
}

// next handles some rows in one transaction, and tells how many.
func next(ctx context.Context, db *pgxpool.Pool) (handled int, err error) {
	type row struct {
		ID      string
		Payload []byte
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		taken, _ := tx.Query(ctx, take) // CollectRows has its error
		rows, err := pgx.CollectRows(taken, pgx.RowToStructByPos[row])
		if err != nil {
			return fmt.Errorf("take rows: %w", err)
		}
		for _, r := range rows {
			if err := shipping.HandleIn(ctx, tx, r.ID, r.Payload); err != nil {
				return err
			}
		}
		handled = len(rows)
		return nil
	})
	return handled, err
}
