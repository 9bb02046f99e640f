package outboxriver_test

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	outboxriver "github.com/outboxrelay/outbox/contrib/river"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/store/postgres"
)

// sweepArgs is a periodic job, so that one process at a time looks for jobs without a letter.
type sweepArgs struct{}

func (sweepArgs) Kind() string { return "outbox_sweep" }

// A client whose failed jobs become dead letters.
func ExampleNew() {
	work := func(ctx context.Context, pool *pgxpool.Pool, workers *river.Workers) error {
		letters := outboxriver.New(pool, outboxriver.Config{})
		river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[sweepArgs]) error {
			_, err := letters.Sweep(ctx, river.ClientFromContext[pgx.Tx](ctx), 6*time.Hour)
			return err
		}))
		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}}, Workers: workers,
			ErrorHandler: letters,
			Middleware:   []rivertype.Middleware{letters},
			PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(river.PeriodicInterval(5*time.Minute),
				func() (river.JobArgs, *river.InsertOpts) { return sweepArgs{}, nil }, &river.PeriodicJobOpts{RunOnStart: true})},
		})
		if err != nil {
			return err
		}
		return client.Start(ctx)
	}
	_ = work
}

// A program that replays letters by their ids, ten a second. It needs no workers.
func ExampleReplay() {
	replay := func(ctx context.Context, pool *pgxpool.Pool, ids ...uuid.UUID) (deadletter.Replayed, error) {
		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
		if err != nil {
			return deadletter.Replayed{}, err
		}
		dlq, err := postgres.OpenDeadLetters(ctx, pool, postgres.DeadLettersConfig{ReplayJob: outboxriver.Replay(client)})
		if err != nil {
			return deadletter.Replayed{}, err
		}
		return deadletter.Replay(ctx, dlq, deadletter.ReplayOptions{
			Selection: deadletter.Selection{IDs: ids},
			Operator:  deadletter.Operator{Actor: "ann", Reason: "the bank is back"},
			Rate:      10,
		})
	}
	_ = replay
}
