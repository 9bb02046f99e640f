package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres"
)

// remembers measures what remembering an id costs a transaction with an effect, beside as many remembered ids as
// --delivered says, and how long the end of their window takes.
func remembers(ctx context.Context, _ *servers, o options, found *figures) (err error) {
	own, err := testenv.StartPostgres(ctx, testenv.PostgresConfig{Fsync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Stop()) }()
	url := own.URL("postgres")
	if err := pgmigrations.Up(ctx, url, "core"); err != nil {
		return err
	}
	db, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range []string{
		"CREATE TABLE effects (n BIGINT)",
		fmt.Sprintf(`INSERT INTO outbox_inbox_1 (key, payload, at)
			SELECT gen_random_uuid(), gen_random_uuid(), now() - interval '1 hour' FROM generate_series(1, %d)`, o.delivered),
		"VACUUM ANALYZE outbox_inbox_1", "CHECKPOINT",
	} {
		if _, err := db.Exec(ctx, statement); err != nil {
			return err
		}
	}
	in, err := postgres.NewInbox(inbox.Config{Consumer: "bench", Window: 24 * time.Hour})
	if err != nil {
		return err
	}
	conn, err := db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return in.Register(ctx, tx) }); err != nil {
		return err
	}
	effect := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES (1)")
		return err
	}
	way := func(name string, run func(pgx.Tx) (time.Duration, error)) task {
		return task{name, "", ours, func(ctx context.Context, into *line) error {
			return guarded(ctx, conn, o.writing, run, into)
		}}
	}
	if err := found.measure(ctx, o, []task{
		way("an effect", func(tx pgx.Tx) (time.Duration, error) { return 0, effect(tx) }),
		way(fmt.Sprintf("an effect, once, beside %d ids", o.delivered), func(tx pgx.Tx) (took time.Duration, err error) {
			began := time.Now()
			_, err = in.Once(ctx, tx, inbox.ID{Event: uuid.NewString(), Payload: []byte("{}")}, func() error {
				took = time.Since(began)
				return effect(tx)
			})
			return took, err
		}),
	}); err != nil {
		return err
	}
	return endOfWindow(ctx, db, in)
}

// guarded runs transactions one after the other, of which run says how long the guard took.
func guarded(
	ctx context.Context, conn *pgxpool.Conn, length time.Duration, run func(pgx.Tx) (time.Duration, error), into *line,
) error {
	var guard []time.Duration
	began := time.Now()
	for time.Since(began) < length {
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			took, err := run(tx)
			guard = append(guard, took)
			return err
		}); err != nil {
			return err
		}
	}
	into.add("rate", float64(len(guard))/time.Since(began).Seconds())
	slices.Sort(guard)
	into.add("p50", percentile(guard, 0.5).Seconds()*1000)
	into.add("p99", percentile(guard, 0.99).Seconds()*1000)
	return nil
}

// endOfWindow measures how long the end of a window takes, and the deliveries beside it.
func endOfWindow(ctx context.Context, db *pgxpool.Pool, in *inbox.Inbox[pgx.Tx]) error {
	if _, err := db.Exec(ctx, "UPDATE outbox_inbox_turn SET since = now() - interval '2 days'"); err != nil {
		return err
	}
	beside := make(chan time.Duration, 1)
	sweeping, swept := context.WithCancel(ctx)
	defer swept()
	go func() { beside <- longest(sweeping, db, in) }()
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	if err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		ended, err := in.Sweep(ctx, tx)
		if err == nil && !ended {
			err = errors.New("the window did not end")
		}
		return err
	}); err != nil {
		return err
	}
	took := time.Since(began)
	swept()
	fmt.Printf("the end of the window: %.0f ms; the longest that a delivery took beside it: %.0f ms\n",
		took.Seconds()*1000, (<-beside).Seconds()*1000)
	return nil
}

// longest is how long the slowest of some deliveries took, one after the other until ctx ends.
func longest(ctx context.Context, db *pgxpool.Pool, in *inbox.Inbox[pgx.Tx]) (most time.Duration) {
	for ctx.Err() == nil {
		began := time.Now()
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := in.Once(ctx, tx, inbox.ID{Event: uuid.NewString()}, func() error { return nil })
			return err
		})
		if err == nil {
			most = max(most, time.Since(began))
		}
	}
	return most
}
