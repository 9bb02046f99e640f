package outboxriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/outboxrelay/outbox/deadletter"
)

const sweepPage = 1000 // jobs

// Sweep implements Letters.
func (l *letters) Sweep(
	ctx context.Context, client *river.Client[pgx.Tx], window time.Duration,
) (recorded int, err error) {
	if schema := client.Schema(); schema != l.cfg.Schema {
		return 0, fmt.Errorf("sweep River's jobs: the client's Schema is %q, that of the letters %q", schema, l.cfg.Schema)
	}
	since := time.Now().Add(-window) // finalized_at is by the clock of a client as well
	var invalid []error
	for _, state := range []rivertype.JobState{rivertype.JobStateDiscarded, rivertype.JobStateCancelled} {
		page := river.NewJobListParams().States(state).OrderBy(river.JobListOrderByFinalizedAt,
			river.SortOrderAsc).First(sweepPage).
			Where("finalized_at >= @since", river.NamedArgs{"since": since})
		for {
			found, err := client.JobList(ctx, page)
			if err != nil {
				return recorded, fmt.Errorf("list River's %s jobs: %w", state, err)
			}
			n, err := l.sweep(ctx, found.Jobs)
			recorded += n
			if errors.Is(err, deadletter.ErrInvalidJob) {
				invalid = append(invalid, err)
			} else if err != nil {
				return recorded, err
			}
			if len(found.Jobs) < sweepPage {
				break
			}
			page = page.After(found.LastCursor)
		}
	}
	return recorded, errors.Join(invalid...)
}

// sweep records those of a page that have no letter. Its error matches deadletter.ErrInvalidJob
// only if it did all it could.
func (l *letters) sweep(ctx context.Context, jobs []*rivertype.JobRow) (recorded int, err error) {
	ids := make([]uuid.UUID, len(jobs))
	for i, job := range jobs {
		ids[i] = JobID(l.cfg.Schema, job.ID)
	}
	known, err := attempts(ctx, l.pool, ids)
	if err != nil {
		return 0, err
	}
	var invalid []error
	for i, job := range jobs {
		if known[ids[i]] >= max(job.Attempt, 1) || cancelledByOthers(job) {
			continue
		}
		errs := failures(job)
		if len(errs) == 0 {
			errs = []deadletter.Failure{{Error: fmt.Sprintf("%s without an error", job.State), Timestamp: *job.FinalizedAt}}
		}
		var latest rivertype.AttemptError
		if n := len(job.Errors); n > 0 {
			latest = job.Errors[n-1]
		}
		_, err := l.record(ctx, job, reasonOfText(job.Kind, latest), errs)
		if errors.Is(err, deadletter.ErrInvalidJob) {
			invalid = append(invalid, err)
		} else if err != nil {
			return recorded, err
		} else {
			recorded++
		}
	}
	return recorded, errors.Join(invalid...)
}

// attempts returns how many attempts the newest letter of each job tells of. Jobs without a letter
// are not in it.
func attempts(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, ids []uuid.UUID) (map[uuid.UUID]int, error) {
	known := map[uuid.UUID]int{}
	rows, err := db.Query(ctx, lettersSQL, ids)
	if err == nil {
		var id uuid.UUID
		var n int
		_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { known[id] = n; return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("look for letters of jobs: %w", err)
	}
	return known, nil
}

// cancelAttempted is where River writes that somebody asked it to cancel a job.
const cancelAttempted = "cancel_attempted_at"

func cancelledByOthers(job *rivertype.JobRow) bool {
	var metadata map[string]json.RawMessage
	return job.State == rivertype.JobStateCancelled && json.Unmarshal(job.Metadata, &metadata) == nil &&
		metadata[cancelAttempted] != nil
}
