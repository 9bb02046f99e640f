package outboxriver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/outboxrelay/outbox"
	outboxriver "github.com/outboxrelay/outbox/contrib/river"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// misfit has the kind of job, and arguments that its worker cannot decode.
type misfit struct {
	Do int `json:"do"`
}

func (misfit) Kind() string { return "test" }

// unknown is a kind without a worker.
type unknown struct{}

func (unknown) Kind() string { return "unknown" }

// fail does what a job says, and fails.
func fail(ctx context.Context, j *river.Job[job]) error {
	switch j.Args.Do {
	case "panic":
		panic("out of cheese")
	case "time out":
		<-ctx.Done()
		return fmt.Errorf("call the bank: %w", ctx.Err())
	case "cancel":
		return river.JobCancel(errors.New("account closed"))
	case "invalid":
		return river.JobCancel(fmt.Errorf("%w: no such customer", outboxriver.ErrValidation))
	}
	return fmt.Errorf("attempt %d failed\x00", j.Attempt)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Each way in which a job ends, recorded live, and by Sweep from what River has written down of it.
func TestReasons(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, c := range map[string]struct {
		args     river.JobArgs
		attempts int // that it is given; all are used except where the state is cancelled
		state    rivertype.JobState
		reason   outbox.Reason
		last     string
	}{
		"fails":  {job{Do: "fail"}, 3, "discarded", deadletter.JobMaxRetries, "attempt 3 failed"},
		"panics": {job{Do: "panic"}, 1, "discarded", deadletter.JobPanic, "out of cheese"},
		"times out": {job{Do: "time out"}, 1, "discarded", deadletter.JobTimeout,
			"call the bank: context deadline exceeded"},
		"no worker":       {unknown{}, 2, "discarded", outbox.ReasonHandlerMissing, "unknown"},
		"undecodable":     {misfit{Do: 1}, 1, "discarded", deadletter.JobValidation, "json: cannot unmarshal"},
		"cancels":         {job{Do: "cancel"}, 3, "cancelled", deadletter.JobMaxRetries, "account closed"},
		"cancels invalid": {job{Do: "invalid"}, 3, "cancelled", deadletter.JobValidation, "no such customer"},
	} {
		for _, how := range []string{"live", "sweep"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				pool := database(t)
				letters := outboxriver.New(pool, outboxriver.Config{Logger: quiet()})
				cfg := config(letters, func(ctx context.Context, j *river.Job[job]) error {
					return clean(fail(ctx, j))
				})
				if how == "sweep" {
					cfg.ErrorHandler, cfg.Middleware = nil, nil
				}
				client := start(t, pool, cfg)
				began := time.Now().Add(-time.Second)
				id := insert(t, client, c.args, &river.InsertOpts{MaxAttempts: c.attempts})
				row := reaches(t, client, id, c.state)
				recorded, err := letters.Sweep(t.Context(), client, time.Hour)
				ok(t, err)
				if want := map[string]int{"live": 0, "sweep": 1}[how]; recorded != want {
					t.Errorf("swept %d letters, want %d", recorded, want)
				}

				found := ofJob(t, pool, id)
				if len(found) != 1 {
					t.Fatalf("got %d letters, want 1", len(found))
				}
				letter := found[0]
				if letter.Source != deadletter.SourceJob || letter.Reason != string(c.reason) || letter.Type != c.args.Kind() ||
					letter.Attempts != row.Attempt ||
					letter.Tenant != "default" || !strings.Contains(letter.LastError, c.last) {
					t.Errorf("got %+v, want reason %s, %d attempts, last error %q", letter, c.reason, row.Attempt, c.last)
				}
				var history []deadletter.Failure
				ok(t, json.Unmarshal(letter.ErrorHistory, &history))
				if len(history) != row.Attempt {
					t.Errorf("the history has %d errors, want %d: %s", len(history), row.Attempt, letter.ErrorHistory)
				}
				for _, f := range history {
					if f.Error == "" || f.Timestamp.Before(began) || f.Timestamp.After(time.Now()) {
						t.Errorf("bad entry in history: %+v", f)
					}
				}
				var payload struct {
					Args  json.RawMessage
					River struct{ ID int64 }
				}
				ok(t, json.Unmarshal(letter.Payload, &payload))
				want, err := json.Marshal(c.args)
				ok(t, err)
				if payload.River.ID != id || !equalJSON(t, payload.Args, want) {
					t.Errorf("payload %s, want arguments %s of job %d", letter.Payload, want, id)
				}
			})
		}
	}
}

// clean removes a NUL from an error, which River cannot store.
func clean(err error) error {
	var cancelled *rivertype.JobCancelError
	if errors.As(err, &cancelled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\x00", ""))
}

func equalJSON(t testing.TB, a, b []byte) bool {
	t.Helper()
	var x, y any
	ok(t, json.Unmarshal(a, &x))
	ok(t, json.Unmarshal(b, &y))
	return fmt.Sprint(x) == fmt.Sprint(y)
}

// What somebody else decided, and what will be tried again, is no dead letter.
func TestNoLetter(t *testing.T) {
	t.Parallel()
	pool := database(t)
	letters := outboxriver.New(pool, outboxriver.Config{Logger: quiet()})
	working := make(chan struct{})
	cfg := config(letters, func(ctx context.Context, j *river.Job[job]) error {
		if j.Args.Do == "wait" {
			close(working)
			<-ctx.Done()
			return ctx.Err()
		}
		if j.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	cfg.JobTimeout = time.Minute
	client := start(t, pool, cfg)
	second := insert(t, client, job{}, nil)
	reaches(t, client, second, rivertype.JobStateCompleted)

	waiting := insert(t, client, job{Do: "wait"}, nil)
	<-working
	_, err := client.JobCancel(t.Context(), waiting)
	ok(t, err)
	reaches(t, client, waiting, rivertype.JobStateCancelled)
	later := insert(t, client, job{}, &river.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)})
	_, err = client.JobCancel(t.Context(), later)
	ok(t, err)

	if n, err := letters.Sweep(t.Context(), client, time.Hour); n != 0 || err != nil {
		t.Errorf("swept %d, error %v, want nothing", n, err)
	}
	for _, id := range []int64{second, waiting, later} {
		if found := ofJob(t, pool, id); len(found) != 0 {
			t.Errorf("job %d has a letter: %+v", id, found)
		}
	}
}

// canceller is a handler of the user's own that ends jobs.
type canceller struct{}

func (canceller) HandleError(context.Context, *rivertype.JobRow, error) *river.ErrorHandlerResult {
	return &river.ErrorHandlerResult{SetCancelled: true}
}

func (canceller) HandlePanic(context.Context, *rivertype.JobRow, any, string) *river.ErrorHandlerResult {
	return &river.ErrorHandlerResult{SetCancelled: true}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	pool := database(t)
	user, request := uuid.New(), uuid.New()
	letters := outboxriver.New(pool, outboxriver.Config{
		Tenant:    func(j *rivertype.JobRow) string { return "acme" },
		UserID:    func(j *rivertype.JobRow) uuid.UUID { return user },
		RequestID: func(j *rivertype.JobRow) uuid.UUID { return request },
		Next:      canceller{}, Logger: quiet(),
	})
	client := start(t, pool, config(letters, fail))
	for _, do := range []string{"time out", "panic"} {
		id := insert(t, client, job{Do: do}, &river.InsertOpts{MaxAttempts: 5})
		if row := reaches(t, client, id, rivertype.JobStateCancelled); row.Attempt != 1 {
			t.Errorf("%s: cancelled at attempt %d, want 1", do, row.Attempt)
		}
		found := ofJob(t, pool, id)
		if len(found) != 1 || found[0].Tenant != "acme" || *found[0].UserID != user || *found[0].RequestID != request {
			t.Errorf("%s: got %+v", do, found)
		}
	}
	other := outboxriver.New(pool, outboxriver.Config{Schema: "other"})
	if _, err := other.Sweep(t.Context(), client, time.Hour); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("sweep of another schema: %v", err)
	}
}

// lines is a log that is read while a client may write to it.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// River discards the job whatever the handler answers. It is in one place then, and in both after
// the next sweep.
func TestLettersDown(t *testing.T) {
	t.Parallel()
	pool := database(t)
	var log lines
	letters := outboxriver.New(pool, outboxriver.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	client := start(t, pool, config(letters, fail))
	_, err := pool.Exec(t.Context(), `ALTER TABLE job_dlq RENAME TO away`)
	ok(t, err)
	ids := []int64{insert(t, client, job{Do: "panic"}, &river.InsertOpts{MaxAttempts: 1}),
		insert(t, client, job{Do: "cancel"}, nil)}
	reaches(t, client, ids[0], rivertype.JobStateDiscarded)
	reaches(t, client, ids[1], rivertype.JobStateCancelled)
	for _, id := range ids {
		if want := fmt.Sprintf("job=%d kind=test", id); !strings.Contains(log.String(), want) ||
			!strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("the log does not tell of job %d: %s", id, &log)
		}
	}
	if _, err := letters.Sweep(t.Context(), client, time.Hour); err == nil {
		t.Error("a sweep without letters has no error")
	}
	_, err = pool.Exec(t.Context(), `ALTER TABLE away RENAME TO job_dlq`)
	ok(t, err)
	for _, want := range []int{2, 0} {
		if n, err := letters.Sweep(t.Context(), client, time.Hour); n != want || err != nil {
			t.Errorf("swept %d, error %v, want %d", n, err, want)
		}
	}
	// Nor after a replay, while River still has the jobs that failed.
	if sum := replay(t, pool, outboxriver.Replay(client)); sum.Letters != 2 {
		t.Errorf("replayed %+v, want 2 letters", sum)
	}
	reaches(t, client, ids[1]+1, rivertype.JobStateDiscarded)
	reaches(t, client, ids[1]+2, rivertype.JobStateCancelled)
	if n, err := letters.Sweep(t.Context(), client, time.Hour); n != 0 || err != nil {
		t.Errorf("swept %d after the replay, error %v, want 0", n, err)
	}
}

// A job that cannot be recorded is named, and the others are recorded.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	pool := database(t)
	client := start(t, pool, config(nil, fail))
	var ids []int64
	for n := range 3 {
		ids = append(ids, insert(t, client, job{Do: "panic", N: n}, &river.InsertOpts{MaxAttempts: 1}))
	}
	for _, id := range ids {
		reaches(t, client, id, rivertype.JobStateDiscarded)
	}
	letters := outboxriver.New(pool, outboxriver.Config{Tenant: func(j *rivertype.JobRow) string {
		if j.ID == ids[0] {
			return strings.Repeat("x", 1000)
		}
		return ""
	}})
	n, err := letters.Sweep(t.Context(), client, time.Hour)
	if n != 2 || !errors.Is(err, deadletter.ErrInvalidJob) {
		t.Errorf("swept %d, error %v, want 2 and ErrInvalidJob", n, err)
	}
	if n, err := letters.Sweep(t.Context(), client, -time.Minute); n != 0 || err != nil {
		t.Errorf("swept %d of an empty window, error %v", n, err)
	}
}

// Many processes may record a job at once: a client whose job was rescued while it still ran, the
// rescuer's, a sweep.
func TestRecordedAtOnce(t *testing.T) {
	t.Parallel()
	pool := database(t)
	row := &rivertype.JobRow{ID: 42, Kind: "test", Attempt: 3, MaxAttempts: 3, EncodedArgs: []byte(`{}`)}
	var all sync.WaitGroup
	for range 16 {
		letters := outboxriver.New(pool, outboxriver.Config{Logger: quiet()})
		all.Go(func() { letters.HandleError(t.Context(), row, errors.New("x\x00")) })
	}
	all.Wait()
	if found := ofJob(t, pool, 42); len(found) != 1 {
		t.Errorf("got %d letters, want 1", len(found))
	}
}

// Any login may take the lock of a job and keep it.
func TestLockNamesItsHolder(t *testing.T) {
	t.Parallel()
	tier.Full(t) // it waits 8 s
	pool := database(t)
	row := &rivertype.JobRow{ID: 42, Kind: "test", Attempt: 3, MaxAttempts: 3, EncodedArgs: []byte(`{}`)}
	var log lines
	letters := outboxriver.New(pool, outboxriver.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL application_name = 'console'"); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), outboxriver.LockSQL, outboxriver.JobID("", row.ID)); err != nil {
			return err
		}
		letters.HandleError(t.Context(), row, errors.New("x"))
		conn := tx.Conn()
		want := fmt.Sprintf("process %d, login %s, application", conn.PgConn().PID(), conn.Config().User)
		if said := log.String(); !strings.Contains(said, want) || !strings.Contains(said, "console") {
			t.Errorf("got %s, want %q and its application", said, want)
		}
		return nil
	}))
}

func TestJobID(t *testing.T) {
	t.Parallel()
	a, b := outboxriver.JobID("", 41), outboxriver.JobID("", 42)
	if a.Version() != 8 || a.Variant() != uuid.RFC4122 || !strings.HasSuffix(b.String(), "-8000-00000000002a") ||
		bytes.Compare(a[:], b[:]) >= 0 {
		t.Errorf("got %s and %s", a, b)
	}
	if outboxriver.JobID("other", 42) == b {
		t.Error("two schemas have the same id")
	}
}

// A sweep asks this for every page of jobs.
func TestPlans(t *testing.T) {
	t.Parallel()
	pool := database(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO apps (name, namespace) VALUES ('x', 'x')`)
	ok(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history)
		SELECT gen_random_uuid(), (SELECT id FROM apps WHERE namespace = 'x'), 't', '{}', 'Panic', 1, '[]' FROM generate_series(1, 5000)`)
	ok(t, err)
	_, err = pool.Exec(t.Context(), `ANALYZE job_dlq`)
	ok(t, err)
	rows, err := pool.Query(t.Context(), "EXPLAIN "+outboxriver.LettersSQL, []uuid.UUID{uuid.New(), uuid.New()})
	ok(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ok(t, err)
	if text := strings.Join(plan, "\n"); !strings.Contains(text, "idx_job_dlq_original_job_id") {
		t.Errorf("not served by its index:\n%s", text)
	}
}
