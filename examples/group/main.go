// Command group places orders and bills them, in one program and on one file: the events of orders
// are handled by a function, each in the transaction of its effect. It needs nothing but Go, and
// ends when all orders are billed.
//
// It guarantees what package inbox/group does. Any number of processes may share the work on
// PostgreSQL; a file of SQLite has one writer at a time.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// Order is what order.placed tells.
type Order struct{ ID, Cents int }

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "outbox")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	db, err := sqlite.Create(ctx, filepath.Join(folder, "shop.db"), 2)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := migrations.Up(ctx, db.Writes(), "core"); err != nil {
		return err
	}
	if _, err := db.Writes().ExecContext(ctx, "CREATE TABLE invoices (ord INTEGER, cents INTEGER)"); err != nil {
		return err
	}
	for id := 1; id <= 3; id++ {
		if err := place(ctx, db, Order{ID: id, Cents: 100 * id}); err != nil {
			return err
		}
	}
	return bill(ctx, db, 3)
}

// place places an order; its event is committed with whatever else the transaction does.
func place(ctx context.Context, db *sqlite.DB, o Order) error {
	writer, err := sqlite.NewWriter(outbox.WriterConfig{Source: "shop"})
	if err != nil {
		return err
	}
	placed, err := outbox.NewEvent("order.placed", o)
	if err != nil {
		return err
	}
	placed.AggregateType, placed.AggregateID = "Order", strconv.Itoa(o.ID)
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	if err := writer.Write(ctx, tx, placed); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// bill writes an invoice for each order, until there are enough.
func bill(ctx context.Context, db *sqlite.DB, orders int) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	cfg := group.Config{Name: "billing", Table: outbox.OutboxEvents()}
	g, err := group.New(db, sqlite.Transactions(db), cfg)
	if err != nil {
		return err
	}
	group.Handle(g, "order.placed", func(ctx context.Context, tx *sql.Tx, m group.Message[Order]) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO invoices VALUES (?, ?)", m.Data.ID, m.Data.Cents); err != nil {
			return err // tried again; after five failures the event is a dead letter
		}
		fmt.Printf("order %d: %d cents\n", m.Data.ID, m.Data.Cents)
		if orders--; orders == 0 {
			done()
		}
		return nil
	})
	return g.Run(ctx)
}
