package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// replayTooLarge puts back the orders that a sink found too large.
func replayTooLarge(ctx context.Context, pool *pgxpool.Pool) (deadletter.Replayed, error) {
	letters, err := postgres.OpenDeadLetters(ctx, pool,
		postgres.DeadLettersConfig{Layouts: []outbox.Layout{outbox.OutboxEvents()}})
	if err != nil {
		return deadletter.Replayed{}, err
	}
	return deadletter.Replay(ctx, letters, deadletter.ReplayOptions{
		Selection: deadletter.Selection{Filter: deadletter.Filter{Type: "order.placed", Error: "too large"}},
		Operator:  deadletter.Operator{Actor: "ann", Reason: "the limit was raised"},
		Rate:      200,
	})
}

// A program that replays letters itself. A sink refuses an order, which becomes a dead letter; once
// the cause is gone the order goes back into its table, where a relay finds it.
func ExampleOpenDeadLetters() {
	t, pool, writer := exampleTest()
	defer t.end()
	ctx := t.Context()
	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return placeOrder(ctx, tx, writer, "42") }))
	bury(ctx, pool)

	sum, err := replayTooLarge(ctx, pool)
	check(err)
	fmt.Println(sum.Letters, "replayed,", sum.Skipped, "skipped")
	show(ctx, pool, outbox.Event{ID: idOf(ctx, pool)})
	// Output:
	// 1 replayed, 0 skipped
	// order.placed from shop: {"order": "42"}, NEW
}

// bury runs a relay whose sink refuses everything, until there is a dead letter.
func bury(ctx context.Context, pool *pgxpool.Pool) {
	sink := outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
		return outbox.Permanent(errors.New("too large"))
	})
	relay, err := relay.New(postgres.NewDB(pool), sink, relay.Config{Logger: slog.New(slog.DiscardHandler)})
	check(err)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()
	for n := 0; n == 0; time.Sleep(time.Millisecond) {
		check(pool.QueryRow(context.WithoutCancel(ctx), "SELECT count(*) FROM job_dlq").Scan(&n))
	}
	stop()
	check(<-ended)
}

// idOf returns the id of the only letter's event.
func idOf(ctx context.Context, pool *pgxpool.Pool) (id [16]byte) {
	check(pool.QueryRow(ctx, "SELECT original_job_id FROM job_dlq").Scan(&id))
	return id
}
