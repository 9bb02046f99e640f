package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverTuned is River with 500 workers that publish, and no pause between its fetches. It keeps no
// order.
var riverTuned = side{
	name: "River, 500 workers", kind: peer,
	setup: func(ctx context.Context, s *servers) error {
		migrator, err := rivermigrate.New(riverpgxv5.New(s.app), &rivermigrate.Config{Logger: quiet})
		if err != nil {
			return err
		}
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	},
	tables: []string{"river_job"},
	fill: `INSERT INTO river_job (args, kind, max_attempts)
		SELECT jsonb_build_object('n', i, 'pad', repeat('x', 475)), 'publish', 25 FROM generate_series(1, $1::int) i`,
	busy: "SELECT EXISTS (SELECT FROM river_job WHERE state <> 'completed')",
	serve: func(ctx context.Context, s *servers, until context.Context) error {
		workers := river.NewWorkers()
		river.AddWorker(workers, &riverWorker{client: s.client})
		client, err := river.NewClient(riverpgxv5.New(s.app), &river.Config{
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 500}}, Workers: workers, Logger: quiet,
			FetchCooldown: river.FetchCooldownMin, FetchPollInterval: 10 * time.Millisecond,
		})
		if err != nil {
			return err
		}
		if err := client.Start(ctx); err != nil {
			return err
		}
		<-until.Done()
		return client.Stop(ctx)
	},
	opens: func(_ context.Context, s *servers, _ ...func(string)) (writing, func(), error) {
		client, err := river.NewClient(riverpgxv5.New(s.app), &river.Config{Logger: quiet})
		return func(ctx context.Context, n, key int) error {
			return pgx.BeginFunc(ctx, s.app, func(tx pgx.Tx) error {
				if err := business(ctx, tx, key); err != nil {
					return err
				}
				_, err := client.InsertTx(ctx, tx, riverArgs{n, padding}, nil)
				return err
			})
		}, func() {}, err
	},
}

type riverArgs numbered

func (riverArgs) Kind() string { return "publish" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	client *redis.Client
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	return w.client.Publish(ctx, "order.placed", job.EncodedArgs).Err()
}
