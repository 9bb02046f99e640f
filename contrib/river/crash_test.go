package outboxriver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/outboxrelay/outbox"
	outboxriver "github.com/outboxrelay/outbox/contrib/river"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Set for a process that runs one client and kills itself: when it works on a job, or when that
// job's letter is written and River has not marked it.
const (
	dieAt     = "OUTBOXRIVER_DIE_AT"
	dieURL    = "OUTBOXRIVER_DIE_URL"
	dieWork   = "work"
	dieLetter = "letter"
)

func die(at string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(dieURL))
	if err != nil {
		panic(err)
	}
	letters := outboxriver.New(pool, outboxriver.Config{Logger: slog.New(slog.DiscardHandler)})
	cfg := config(letters, func(context.Context, *river.Job[job]) error {
		if at == dieWork {
			kill()
		}
		return errors.New("the last attempt")
	})
	cfg.ErrorHandler = killer{letters}
	client, err := river.NewClient(riverpgxv5.New(pool), cfg)
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		panic(err)
	}
	time.Sleep(time.Minute)
}

type killer struct{ outboxriver.Letters }

func (k killer) HandleError(ctx context.Context, row *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	k.Letters.HandleError(ctx, row, err)
	kill()
	return nil
}

func kill() {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		panic(err)
	}
	select {}
}

func TestCrash(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for at, want := range map[string]struct {
		swept  int
		reason outbox.Reason
	}{
		dieWork:   {1, deadletter.JobRunnerUnavailable},
		dieLetter: {0, deadletter.JobMaxRetries},
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			pool := database(t)
			letters := outboxriver.New(pool, outboxriver.Config{Logger: quiet()})
			cfg := config(letters, func(context.Context, *river.Job[job]) error { return nil })
			cfg.RescueStuckJobsAfter = 100 * time.Millisecond
			client, err := river.NewClient(riverpgxv5.New(pool), cfg)
			ok(t, err)
			id := insert(t, client, job{}, &river.InsertOpts{MaxAttempts: 1})

			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), dieAt+"="+at, dieURL+"="+pool.Config().ConnString())
			out, err := cmd.CombinedOutput()
			if status, is := cmd.ProcessState.Sys().(syscall.WaitStatus); !is || status.Signal() != syscall.SIGKILL {
				t.Fatalf("the process did not kill itself: %v\n%s", err, out)
			}
			reaches(t, client, id, rivertype.JobStateRunning)
			if at == dieLetter {
				left(t, "a job that River calls running", replay(t, pool, outboxriver.Replay(client)),
					fmt.Sprintf("job %d is running", id))
			} else if found := ofJob(t, pool, id); len(found) != 0 {
				t.Fatalf("got %d letters of a job that nobody saw fail", len(found))
			}

			// The dead process was River's leader, for some seconds more.
			_, err = pool.Exec(t.Context(), `DELETE FROM river_leader`)
			ok(t, err)
			time.Sleep(cfg.RescueStuckJobsAfter)
			client = start(t, pool, cfg)
			reaches(t, client, id, rivertype.JobStateDiscarded)
			swept, err := letters.Sweep(t.Context(), client, time.Hour)
			ok(t, err)
			found := ofJob(t, pool, id)
			if swept != want.swept || len(found) != 1 || found[0].Reason != string(want.reason) {
				t.Fatalf("swept %d, letters %+v, want %d swept and one of %s", swept, found, want.swept, want.reason)
			}
			if sum := replay(t, pool, outboxriver.Replay(client)); sum.Letters != 1 {
				t.Errorf("replayed %+v, want 1 letter", sum)
			}
			reaches(t, client, id+1, rivertype.JobStateCompleted)
		})
	}
}
