package group_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/store/postgres"
)

type Order struct {
	ID    string
	Cents int
}

// bill writes an invoice for each order until ctx ends, in as many processes as you like.
func bill(ctx context.Context, url string, pool *pgxpool.Pool) error {
	db, err := postgres.Connect(ctx, url, postgres.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	g, err := group.New(db, postgres.Transactions(pool), group.Config{Name: "billing"})
	if err != nil {
		return err
	}
	group.Handle(g, "order.placed", func(ctx context.Context, tx pgx.Tx, m group.Message[Order]) error {
		_, err := tx.Exec(ctx, "INSERT INTO invoices VALUES ($1, $2)", m.Data.ID, m.Data.Cents)
		return err
	})
	return g.Run(ctx)
}

// place writes the event of an order into the log that the group reads.
func place(ctx context.Context, pool *pgxpool.Pool, o Order) error {
	writer, err := postgres.NewWriter(outbox.WriterConfig{Table: "outbox_log", Source: "shop"})
	if err != nil {
		return err
	}
	event, err := outbox.NewEvent("order.placed", o)
	if err != nil {
		return err
	}
	event.AggregateType, event.AggregateID = "Order", o.ID
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return writer.Write(ctx, tx, event) })
}

// The code of docs/guide/consuming.md.
func Example() {
	ctx, url := context.Background(), os.Getenv("DATABASE_URL")
	pool, err := pgxpool.New(ctx, url)
	if err == nil {
		err = place(ctx, pool, Order{ID: "42", Cents: 1200})
	}
	if err == nil {
		err = bill(ctx, url, pool)
	}
	if err != nil {
		log.Fatal(err)
	}
}
