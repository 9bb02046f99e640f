package outboxriver

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/store/postgres"
)

// recordLimit bounds the writing of a letter. It holds the job's worker, and a client that stops
// waits for it.
const recordLimit = 10 * time.Second

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/lock_holder.sql
	lockHolderSQL string
	//go:embed sql/letters.sql
	lettersSQL string
)

// Config says what letters contain. The zero value is ready.
type Config struct {
	Schema string // as in river.Config

	Tenant    func(*rivertype.JobRow) string    // namespace of an application; nil or "": "default"
	UserID    func(*rivertype.JobRow) uuid.UUID // nil or zero: none
	RequestID func(*rivertype.JobRow) uuid.UUID // nil or zero: none

	Next   river.ErrorHandler // is asked first, and can cancel the job; nil: nobody
	Logger *slog.Logger       // (slog.Default)
}

// Letters writes the dead letters of a River client. Set it as ErrorHandler, which River asks about
// errors and panics, and among Middleware, because River does not ask its ErrorHandler about jobs
// that their workers cancel. Put it first there, to see what other middleware cancels. It is safe
// for concurrent use.
//
// A letter that cannot be written within 10 s is logged as an error. That the job is discarded no
// answer can prevent, so it is for Sweep then.
type Letters interface {
	river.ErrorHandler
	rivertype.WorkerMiddleware
	// Sweep records the jobs that River ended within the last window and that have no letter, and
	// returns how many. Run it every few minutes, as one of River's periodic jobs for example, with
	// a window of some hours; after an outage of the letters with a longer one. The window must be
	// shorter than letters are kept (30 days by default after a replay), or a purged one is written
	// again. A job that cannot be recorded as it is does not stop the others, and is in the error.
	Sweep(ctx context.Context, client *river.Client[pgx.Tx], window time.Duration) (recorded int, err error)
}

// letters is a Letters.
type letters struct {
	pool *pgxpool.Pool
	cfg  Config
}

// New returns the letters in the database of pool.
func New(pool *pgxpool.Pool, cfg Config) Letters {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &letters{pool: pool, cfg: cfg}
}

// HandleError implements river.ErrorHandler: it records a job that will not be tried again.
func (l *letters) HandleError(
	ctx context.Context, job *rivertype.JobRow, err error,
) (result *river.ErrorHandlerResult) {
	if l.cfg.Next != nil {
		result = l.cfg.Next.HandleError(ctx, job, err)
	}
	if last(job, result) {
		l.keep(ctx, job, reasonOf(err), err.Error())
	}
	return result
}

// HandlePanic implements river.ErrorHandler, like HandleError.
func (l *letters) HandlePanic(
	ctx context.Context, job *rivertype.JobRow, value any, trace string,
) (result *river.ErrorHandlerResult) {
	if l.cfg.Next != nil {
		result = l.cfg.Next.HandlePanic(ctx, job, value, trace)
	}
	if last(job, result) {
		l.keep(ctx, job, deadletter.JobPanic, fmt.Sprint(value))
	}
	return result
}

func last(job *rivertype.JobRow, result *river.ErrorHandlerResult) bool {
	return job.Attempt >= job.MaxAttempts || result != nil && result.SetCancelled
}

// IsMiddleware implements rivertype.Middleware.
func (*letters) IsMiddleware() bool { return true }

// Work implements rivertype.WorkerMiddleware: it records a job that its worker cancels.
func (l *letters) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	err := work(ctx)
	var cancelled *rivertype.JobCancelError
	if errors.As(err, &cancelled) && !errors.Is(context.Cause(ctx), rivertype.ErrJobCancelledRemotely) {
		l.keep(ctx, job, reasonOf(err), err.Error())
	}
	return err
}

// keep records a job for River, to whom no error can be returned.
func (l *letters) keep(ctx context.Context, job *rivertype.JobRow, reason outbox.Reason, problem string) {
	// Also while the client is being stopped: River will mark the job then too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordLimit)
	defer cancel()
	log := l.cfg.Logger.With("job", job.ID, "kind", job.Kind, "reason", string(reason))
	id, err := l.record(ctx, job, reason, append(failures(job), deadletter.Failure{Error: problem, Timestamp: time.Now()}))
	if err != nil {
		log.Error("job has no letter, River alone keeps it until Sweep finds it", "error", err)
		return
	}
	log.Info("job dead-lettered", "letter", id)
}

func failures(job *rivertype.JobRow) []deadletter.Failure {
	past := make([]deadletter.Failure, len(job.Errors))
	for i, e := range job.Errors {
		past[i] = deadletter.Failure{Error: e.Error, Timestamp: e.At}
	}
	return past
}

// record writes the letter of a job, or finds the one it has.
func (l *letters) record(
	ctx context.Context, job *rivertype.JobRow, reason outbox.Reason, errs []deadletter.Failure,
) (letter uuid.UUID, err error) {
	text, err := encode(job)
	if err != nil {
		return uuid.Nil, fmt.Errorf("encode job %d: %w", job.ID, err)
	}
	j := deadletter.Job{ID: JobID(l.cfg.Schema, job.ID), Type: job.Kind, Payload: text, Reason: reason,
		Attempts: max(job.Attempt, 1), Errors: errs}
	if l.cfg.Tenant != nil {
		j.Tenant = l.cfg.Tenant(job)
	}
	if l.cfg.UserID != nil {
		j.UserID = l.cfg.UserID(job)
	}
	if l.cfg.RequestID != nil {
		j.RequestID = l.cfg.RequestID(job)
	}
	// Read committed, whatever the session's default: what the lock waited for must be seen.
	err = pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSQL, j.ID); err != nil {
			return fmt.Errorf("lock job %d: %w", job.ID, err)
		}
		letter, err = deadletter.Add(ctx, postgres.NewJobLetters(tx), j)
		return err
	})
	if refusal, is := errors.AsType[*pgconn.PgError](err); is && refusal.Code == lockNotAvailable {
		var holder string // asked outside of the transaction, which is aborted
		if l.pool.QueryRow(ctx, lockHolderSQL, j.ID).Scan(&holder) == nil {
			err = fmt.Errorf("%s holds the lock; let it finish, or end it with pg_terminate_backend: %w", holder, err)
		}
	}
	return letter, err
}

const lockNotAvailable = "55P03"
