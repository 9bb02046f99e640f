package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// An order and the event about it are committed together.
func ExampleNewWriter() {
	ctx := context.Background()
	pool := openPool(ctx)
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	check(err)

	tx, err := pool.Begin(ctx)
	check(err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "INSERT INTO orders (total) VALUES (42)")
	check(err)
	event, err := outbox.NewEvent("order.placed", map[string]int{"total": 42})
	check(err)
	check(writer.Write(ctx, tx, event))
	check(tx.Commit(ctx))

	show(ctx, pool, event)
	// Output: order.placed from shop: {"total": 42}, NEW
}

// The same with database/sql, and so with what is built on it: examples/orm has GORM, ent, sqlx,
// bun and sqlc.
func ExampleNewSQLWriter() {
	ctx := context.Background()
	pool := openPool(ctx)
	db := stdlib.OpenDBFromPool(pool) // or sql.Open with any PostgreSQL driver
	writer, err := postgres.NewSQLWriter(outbox.WriterConfig{Source: "shop"})
	check(err)

	tx, err := db.BeginTx(ctx, nil)
	check(err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(ctx, "INSERT INTO orders (total) VALUES (7)")
	check(err)
	event, err := outbox.NewEvent("order.placed", map[string]int{"total": 7})
	check(err)
	check(writer.Write(ctx, tx, event))
	check(tx.Commit())

	show(ctx, pool, event)
	// Output: order.placed from shop: {"total": 7}, NEW
}

// InTx begins, runs the function, and sends the events together with COMMIT: the cheapest way to
// write.
func ExampleWriter_InTx() {
	ctx := context.Background()
	pool := openPool(ctx)
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	check(err)

	event, err := outbox.NewEvent("order.placed", map[string]int{"total": 1})
	check(err)
	check(writer.InTx(ctx, pool, func(tx pgx.Tx) ([]outbox.Event, error) {
		_, err := tx.Exec(ctx, "INSERT INTO orders (total) VALUES (1)")
		return []outbox.Event{event}, err
	}))

	show(ctx, pool, event)
	// Output: order.placed from shop: {"total": 1}, NEW
}

// An event that the database would refuse is refused before it is sent, and the transaction goes on
// without it.
func ExampleWriter_invalidEvent() {
	ctx := context.Background()
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	check(err)
	tx, err := openPool(ctx).Begin(ctx)
	check(err)
	defer func() { _ = tx.Rollback(ctx) }()

	err = writer.Write(ctx, tx, outbox.Event{Topic: "note.saved", Payload: []byte(`{"text": "\u0000"}`)})
	fmt.Println(errors.Is(err, outbox.ErrInvalidEvent), err)
	_, err = tx.Exec(ctx, "INSERT INTO orders (total) VALUES (1)")
	fmt.Println(err)
	// Output:
	// true event 0: Payload contains \u0000, which jsonb refuses (at byte 15)
	// <nil>
}

// exampleServer is a private PostgreSQL server with the schema and a table of orders. It stops when
// the test binary ends.
var exampleServer = sync.OnceValue(func() string {
	ctx := context.Background()
	server, err := testenv.StartPostgres(ctx, testenv.PostgresConfig{})
	check(err)
	url := server.URL("postgres")
	check(migrations.Up(ctx, url, "core"))
	conn, err := pgx.Connect(ctx, url)
	check(err)
	_, err = conn.Exec(ctx, "CREATE TABLE orders (id serial, total int)")
	check(err)
	check(conn.Close(ctx))
	return url
})

func openPool(ctx context.Context) *pgxpool.Pool {
	pool, err := pgxpool.New(ctx, exampleServer())
	check(err)
	return pool
}

func show(ctx context.Context, pool *pgxpool.Pool, e outbox.Event) {
	var line string
	check(pool.QueryRow(ctx,
		"SELECT format('%s from %s: %s, %s', event_topic, source_bc, payload, status) FROM outbox_events WHERE id = $1",
		e.ID).Scan(&line))
	fmt.Println(line)
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
