// Package shipping is the service behind the consumers: it ships the order of an event, once an
// event.
//
// Messages of a broker are written into the log of the service's own database, and acknowledged
// after that. A group handles the log: an order that cannot be shipped holds up its own key, and
// ends as a dead letter. The id of an event is committed with its work, so that a copy does
// nothing, whenever it comes and whatever has crashed.
package shipping

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/source"
	"github.com/outboxrelay/outbox/store/postgres"
)

// placed is what order.placed tells.
type placed struct{ Order int64 }

// open connects to the service's database, on which outbox migrate up --set core --set log was run,
// and makes a table of its own there.
func open(ctx context.Context, databaseURL string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	const table = "CREATE TABLE IF NOT EXISTS shipments (order_id bigint NOT NULL, shipped_at timestamptz DEFAULT now())"
	if _, err = pool.Exec(ctx, table); err != nil {
		pool.Close()
		return nil, fmt.Errorf("make table: %w", err)
	}
	return pool, nil
}

// ship is what the service is there for.
func ship(ctx context.Context, tx pgx.Tx, order placed) error {
	if _, err := tx.Exec(ctx, "INSERT INTO shipments (order_id) VALUES ($1)", order.Order); err != nil {
		return fmt.Errorf("ship order %d: %w", order.Order, err)
	}
	return nil
}

// Run ships the orders that a source brings, until ctx ends.
func Run(ctx context.Context, databaseURL string, from source.Source) error {
	pool, err := open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	db, err := postgres.Connect(ctx, databaseURL, postgres.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	log := outbox.OutboxLog()
	writer, err := postgres.NewWriter(outbox.WriterConfig{Table: log.Table, Strict: true})
	if err != nil {
		return err
	}
	tx := postgres.Transactions(pool)
	g, err := group.New(db, tx, group.Config{Name: "shipping", Table: log})
	if err != nil {
		return err
	}
	group.Handle(g, "order.placed", func(ctx context.Context, tx pgx.Tx, m group.Message[placed]) error {
		return ship(ctx, tx, m.Data)
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	handled := make(chan error, 1)
	go func() {
		defer stop()
		handled <- g.Run(ctx)
	}()
	// The broker keeps messages for a week here, and nobody replays older events.
	received := source.Run(ctx, from, tx, writer.Write, source.Config{Name: "shipping",
		Copies: map[string]time.Duration{"retention of the broker": 7 * 24 * time.Hour}})
	stop()
	return errors.Join(received, <-handled)
}
