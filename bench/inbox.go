package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// remembers measures what remembering an id costs a transaction with an effect, beside as many
// remembered ids as --delivered says, and how long the end of their window takes.
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
		// An index is made sooner once all that it is of is there.
		"ALTER TABLE outbox_inbox_1 DROP CONSTRAINT outbox_inbox_1_pkey",
		fmt.Sprintf(`INSERT INTO outbox_inbox_1 (key, payload, at)
			SELECT gen_random_uuid(), gen_random_uuid(), now() - interval '1 hour' FROM generate_series(1, %d)`, o.delivered),
		"ALTER TABLE outbox_inbox_1 ADD PRIMARY KEY (key)", "VACUUM ANALYZE outbox_inbox_1", "CHECKPOINT",
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
		way("an effect, after a statement that does nothing", func(tx pgx.Tx) (took time.Duration, err error) {
			began := time.Now()
			_, err = tx.Exec(ctx, "SELECT $1::text", "") // prepared, as the guard's is
			took = time.Since(began)
			return took, errors.Join(err, effect(tx))
		}),
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
	if err := endOfWindow(ctx, db, in); err != nil {
		return err
	}
	return groups(ctx, url, db, o, found)
}

// groupWorkers are the handlers at a time of a group, and the loops that it is compared with.
const groupWorkers = 8

// groups measures how fast a group handles a backlog of a log, beside loops that have the same
// effects and nothing else.
func groups(ctx context.Context, url string, db *pgxpool.Pool, o options, found *figures) error {
	if err := pgmigrations.Up(ctx, url, "log"); err != nil {
		return err
	}
	events := min(o.rows, 30_000)
	if _, err := db.Exec(ctx, `INSERT INTO outbox_log (occurred_at, event_topic, aggregate_type, aggregate_id, source_bc, payload)
		SELECT now(), 'order.placed', 'Order', (i % 1000)::text, 'bench', '{"n": 1}' FROM generate_series(1, $1) AS i`,
		events); err != nil {
		return err
	}
	served, err := postgres.Connect(ctx, url, postgres.Config{})
	if err != nil {
		return err
	}
	defer served.Close()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	cfg.MaxConns = groupWorkers
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	effect := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES (1)")
		return err
	}
	bare := func(ctx context.Context) error {
		var left atomic.Int64
		left.Store(int64(events))
		var loops errgroup.Group
		for range groupWorkers {
			loops.Go(func() error {
				for left.Add(-1) >= 0 {
					if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return effect(ctx, tx) }); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return loops.Wait()
	}
	round := 0
	type message = group.Message[struct{ N int }]
	handled := func(ctx context.Context, batches bool) error {
		round++
		ctx, done := context.WithCancel(ctx)
		defer done()
		quiet := slog.New(slog.DiscardHandler)
		g, err := group.New(served, postgres.Transactions(pool), group.Config{
			Name: fmt.Sprint("round-", round), Workers: groupWorkers, Relay: relay.Config{Logger: quiet}})
		if err != nil {
			return err
		}
		var left atomic.Int64
		left.Store(int64(events))
		if batches {
			group.HandleBatch(g, "order.placed", func(ctx context.Context, tx pgx.Tx, ms []message) error {
				if left.Add(-int64(len(ms))) == 0 {
					done()
				}
				_, err := tx.Exec(ctx, "INSERT INTO effects SELECT 1 FROM generate_series(1, $1)", len(ms))
				return err
			})
		} else {
			group.Handle(g, "order.placed", func(ctx context.Context, tx pgx.Tx, _ message) error {
				if left.Add(-1) == 0 {
					done()
				}
				return effect(ctx, tx)
			})
		}
		return g.Run(ctx)
	}
	way := func(name string, run func(context.Context) error) task {
		return task{name, "", ours, func(ctx context.Context, into *line) error {
			began := time.Now()
			err := run(ctx)
			into.add("rate", float64(events)/time.Since(began).Seconds())
			return err
		}}
	}
	return found.measure(ctx, o, []task{way("8 loops with an effect each", bare),
		way("a group of 8 workers", func(ctx context.Context) error { return handled(ctx, false) }),
		way("a group of 8 workers, in batches", func(ctx context.Context) error { return handled(ctx, true) })})
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
