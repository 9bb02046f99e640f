package outboxriver_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	outboxriver "github.com/outboxrelay/outbox/contrib/river"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(dieAt); at != "" {
		die(at)
	}
	testenv.Main(m)
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// database returns a pool on a new database with the tables of dead letters and River's.
func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	url := testenv.Prepared(t, "river", func(ctx context.Context, url string) error {
		if err := migrations.Up(ctx, url, "core"); err != nil {
			return err
		}
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return err
		}
		defer pool.Close()
		m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	})
	pool, err := pgxpool.New(t.Context(), url)
	ok(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// job is the one kind of job here: Do tells the worker what.
type job struct {
	Do string `json:"do"`
	N  int    `json:"n,omitempty"`
}

func (job) Kind() string { return "test" }

// config returns that of a client whose worker does as work says and which tries again at once.
func config(letters outboxriver.Letters, work func(context.Context, *river.Job[job]) error) *river.Config {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(work))
	cfg := &river.Config{
		Queues: map[string]river.QueueConfig{"default": {MaxWorkers: 1}, "second": {MaxWorkers: 1}}, Workers: workers,
		FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, JobTimeout: 50 * time.Millisecond,
		RetryPolicy:         atOnce{},
		SkipUnknownJobCheck: true, TestOnly: true, Logger: slog.New(slog.DiscardHandler),
	}
	if letters != nil {
		cfg.ErrorHandler, cfg.Middleware = letters, []rivertype.Middleware{letters}
	}
	return cfg
}

type atOnce struct{}

func (atOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

// start runs a client until t ends.
func start(t testing.TB, pool *pgxpool.Pool, cfg *river.Config) *river.Client[pgx.Tx] {
	t.Helper()
	client, err := river.NewClient(riverpgxv5.New(pool), cfg)
	ok(t, err)
	ok(t, client.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tier.Patience())
		defer cancel()
		ok(t, client.StopAndCancel(ctx))
	})
	return client
}

// insert adds a job.
func insert(t testing.TB, client *river.Client[pgx.Tx], args river.JobArgs, opts *river.InsertOpts) int64 {
	t.Helper()
	added, err := client.Insert(t.Context(), args, opts)
	ok(t, err)
	return added.Job.ID
}

// reaches waits until a job is in a state, and returns it.
func reaches(t testing.TB, client *river.Client[pgx.Tx], id int64, state rivertype.JobState) *rivertype.JobRow {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(5 * time.Millisecond) {
		row, err := client.JobGet(t.Context(), id)
		ok(t, err)
		if row.State == state {
			return row
		}
		if time.Now().After(deadline) {
			t.Fatalf("job %d is %s, want %s: %+v", id, row.State, state, row.Errors)
		}
	}
}

// ofJob returns the letters of one of River's jobs.
func ofJob(t testing.TB, pool *pgxpool.Pool, id int64) []deadletter.Letter {
	t.Helper()
	letters, err := open(t, pool, nil).Show(t.Context(), outboxriver.JobID("", id), "")
	if errors.Is(err, deadletter.ErrNoLetter) {
		return nil
	}
	ok(t, err)
	return letters
}

// replayer is what gives jobs back.
type replayer = func(context.Context, pgx.Tx, deadletter.Letter) error

func open(t testing.TB, pool *pgxpool.Pool, replay replayer) deadletter.Store {
	t.Helper()
	dlq, err := postgres.OpenDeadLetters(t.Context(), pool, postgres.DeadLettersConfig{ReplayJob: replay})
	ok(t, err)
	return dlq
}

// replay replays every pending letter.
func replay(t testing.TB, pool *pgxpool.Pool, replay replayer) deadletter.Replayed {
	t.Helper()
	sum, err := deadletter.Replay(t.Context(), open(t, pool, replay),
		deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}, Operator: deadletter.Operator{Actor: "test"}})
	ok(t, err)
	return sum
}
