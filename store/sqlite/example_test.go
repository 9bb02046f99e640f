package sqlite_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/memory"
	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// A service, its file and its relay in one process: an order is placed, and who listens is told of
// it once it is committed.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "shop")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()

	db, err := sqlite.Create(ctx, filepath.Join(dir, "shop.db"), 4)
	must(err)
	must(migrations.Up(ctx, db.Writes()))
	_, err = db.Writes().ExecContext(ctx,
		"CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT); INSERT INTO orders VALUES (42, 'new')")
	must(err)

	// The relay delivers to this process.
	arrived := make(chan string, 10)
	hub := memory.New(memory.Config{Envelope: outbox.PayloadOnly})
	hub.Subscribe(ctx, "order.placed", memory.Func(func(message []byte) { arrived <- string(message) }))
	relay, err := relay.New(db, hub, relay.Config{})
	must(err)
	stopped := make(chan error)
	go func() { stopped <- relay.Run(ctx) }()

	// The event exists exactly if the order is placed.
	writer, err := sqlite.NewWriter(outbox.WriterConfig{Source: "shop"})
	must(err)
	tx, err := db.Begin(ctx)
	must(err)
	_, err = tx.ExecContext(ctx, "UPDATE orders SET status = 'placed' WHERE id = ?", 42)
	must(err)
	placed, err := outbox.NewEvent("order.placed", map[string]any{"order": 42})
	must(err)
	placed.AggregateType, placed.AggregateID = "Order", "42" // the events of one order stay in order
	must(writer.Write(ctx, tx, placed))
	must(tx.Commit())

	fmt.Println(<-arrived)
	stop()
	must(<-stopped)
	must(db.Close())
	// Output: {"order":42}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
