package outboxriver_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	outboxriver "github.com/outboxrelay/outbox/contrib/river"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/store/postgres"
)

// broken is a worker that fails until it is mended, and remembers what it has done.
type broken struct {
	mended atomic.Bool
	mu     sync.Mutex
	done   []int
}

func (b *broken) work(_ context.Context, j *river.Job[job]) error {
	if !b.mended.Load() {
		return errors.New("broken")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = append(b.done, j.Args.N)
	return nil
}

func TestReplay(t *testing.T) {
	t.Parallel()
	pool := database(t)
	letters := outboxriver.New(pool, outboxriver.Config{Logger: quiet()})
	var worker broken
	client := start(t, pool, config(letters, worker.work))
	var ids []int64
	for n := range 12 { // past 9, so that an order by text would show
		ids = append(ids, insert(t, client, job{N: n},
			&river.InsertOpts{MaxAttempts: 1, Queue: "second", Priority: 3, Tags: []string{"monday"},
				Metadata: []byte(`{"trace": "t-1", "cancel_attempted_at": "2026-01-01T00:00:00Z"}`)}))
	}
	for _, id := range ids {
		reaches(t, client, id, rivertype.JobStateDiscarded)
	}
	worker.mended.Store(true)
	if sum := replay(t, pool, outboxriver.Replay(client)); sum.Letters != 12 || sum.Skipped != 0 {
		t.Fatalf("replayed %+v, want 12 letters", sum)
	}
	for i, id := range ids {
		// Numbered after all the others, one after another.
		row := reaches(t, client, ids[11]+1+int64(i), rivertype.JobStateCompleted)
		if row.Queue != "second" || row.Priority != 3 || row.MaxAttempts != 1 || row.Attempt != 1 ||
			!slices.Equal(row.Tags, []string{"monday"}) {
			t.Errorf("job %d lost its settings: %+v", row.ID, row)
		}
		var metadata struct {
			Trace             string
			CancelAttemptedAt string `json:"cancel_attempted_at"` // would make River cancel it
			Replay            struct {
				Letter uuid.UUID
				Job    int64
			} `json:"outbox_replay"`
		}
		ok(t, json.Unmarshal(row.Metadata, &metadata))
		letter := ofJob(t, pool, id)[0]
		if metadata.Trace != "t-1" || metadata.CancelAttemptedAt != "" || metadata.Replay.Job != id ||
			metadata.Replay.Letter != letter.ID || letter.State != deadletter.StateReplayed {
			t.Errorf("metadata %s, want those of job %d and letter %s; state %s", row.Metadata, id, letter.ID, letter.State)
		}
	}
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}; !slices.Equal(worker.done, want) {
		t.Errorf("done in order %v", worker.done)
	}
	if sum := replay(t, pool, outboxriver.Replay(client)); sum.Letters != 0 {
		t.Errorf("replayed twice: %+v", sum)
	}
}

// left expects that the one letter there was is left as it is, with these words.
func left(t *testing.T, what string, sum deadletter.Replayed, why string) {
	t.Helper()
	if sum.Letters != 0 || sum.Skipped != 1 || !strings.Contains(sum.Reasons[0].Why, why) {
		t.Errorf("%s: got %+v, want one skipped that says %q", what, sum, why)
	}
}

func TestReplayLeavesAlone(t *testing.T) {
	t.Parallel()
	pool := database(t)
	letters := outboxriver.New(pool, outboxriver.Config{Logger: quiet()})
	var worker broken
	client := start(t, pool, config(letters, worker.work))
	id := insert(t, client, job{}, &river.InsertOpts{MaxAttempts: 1})
	reaches(t, client, id, rivertype.JobStateDiscarded)
	again := outboxriver.Replay(client)

	// The insertion and the mark are one transaction.
	inserted := false
	left(t, "rolled back", replay(t, pool, func(ctx context.Context, tx pgx.Tx, letter deadletter.Letter) error {
		if err := again(ctx, tx, letter); err != nil {
			return err
		}
		inserted = true
		return errors.New("not today")
	}), "not today")
	if rows, err := client.JobList(t.Context(), nil); err != nil || len(rows.Jobs) != 1 || !inserted {
		t.Errorf("after a replay that was rolled back River has %d jobs, error %v, want the one that failed", len(rows.Jobs),
			err)
	}

	strict := config(nil, worker.work)
	strict.SkipUnknownJobCheck, strict.Workers = false, river.NewWorkers()
	river.AddWorker(strict.Workers, river.WorkFunc(func(context.Context, *river.Job[unknown]) error { return nil }))
	stranger := start(t, database(t), strict)
	left(t, "a client without a worker for it", replay(t, pool, outboxriver.Replay(stranger)), "not registered")

	replaced := deadletter.ReplayOptions{Selection: deadletter.Selection{IDs: []uuid.UUID{ofJob(t, pool, id)[0].ID}},
		Payload: []byte(`{"n": 1}`)}
	sum, err := deadletter.Replay(t.Context(), open(t, pool, again), replaced)
	ok(t, err)
	left(t, "arguments alone", sum, `lacks "args" or "river"`)

	// By hand, in River: the older letter is out of date, whether the job fails again or not.
	_, err = client.JobRetry(t.Context(), id)
	ok(t, err)
	if row := reaches(t, client, id, rivertype.JobStateDiscarded); row.Attempt != 2 {
		t.Fatalf("attempt %d", row.Attempt)
	}
	if found := ofJob(t, pool, id); len(found) != 2 {
		t.Fatalf("got %d letters, want one of each end", len(found))
	}
	sum, err = deadletter.Replay(t.Context(), open(t, pool, again),
		deadletter.ReplayOptions{Selection: deadletter.Selection{IDs: []uuid.UUID{ofJob(t, pool, id)[1].ID}}})
	ok(t, err)
	left(t, "the older of two letters", sum, "failed again since: replay its letter of attempt 2")
	worker.mended.Store(true)
	_, err = client.JobRetry(t.Context(), id)
	ok(t, err)
	reaches(t, client, id, rivertype.JobStateCompleted)
	if sum := replay(t, pool, again); sum.Letters != 0 || sum.Skipped != 2 ||
		!strings.Contains(sum.Reasons[0].Why, "completed in River") {
		t.Errorf("a job that was done since: got %+v", sum)
	}
}

// Other programs keep letters in the same table.
func TestReplayOfOthers(t *testing.T) {
	t.Parallel()
	pool := database(t)
	client := start(t, pool, config(nil, new(broken).work))
	_, err := deadletter.Add(t.Context(), postgres.NewJobLetters(pool), deadletter.Job{ID: uuid.New(), Type: "test",
		Payload: []byte(`{"args": {}, "river": {"queue": "default"}}`), Reason: deadletter.JobPanic, Attempts: 1,
		Errors: []deadletter.Failure{{Error: "x"}}})
	ok(t, err)
	left(t, "another runner's", replay(t, pool, outboxriver.Replay(client)), "not of a job of this River")
}
