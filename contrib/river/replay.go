package outboxriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/outboxrelay/outbox/deadletter"
)

const replayMetadata = "outbox_replay"

// Replay returns what makes postgres.OpenDeadLetters replay River's jobs: it inserts the job again
// in the replay's transaction. A client that has workers must have one for the job's kind. A letter
// is left as it is if it is not of a job of the client's schema, or if River has not ended that
// job. So it is if River has done the job since, or if there is a letter of a later attempt of the
// job.
//
// The metadata of the new job name the letter, under outbox_replay: {"letter": its id, "job":
// River's id of the job that failed}.
func Replay(client *river.Client[pgx.Tx]) func(context.Context, pgx.Tx, deadletter.Letter) error {
	return func(ctx context.Context, tx pgx.Tx, letter deadletter.Letter) error {
		id, ours := riverID(client.Schema(), letter.OriginalID)
		if !ours {
			return errors.New("it is not of a job of this River")
		}
		if err := ended(ctx, client, tx, id); err != nil {
			return err
		}
		known, err := attempts(ctx, tx, []uuid.UUID{letter.OriginalID})
		if err != nil {
			return err
		}
		if known[letter.OriginalID] > letter.Attempts {
			return fmt.Errorf("job %d has failed again since: replay its letter of attempt %d", id, known[letter.OriginalID])
		}
		args, opts, err := decode(id, letter)
		if err != nil {
			return err
		}
		if _, err := client.InsertTx(ctx, tx, args, opts); err != nil {
			return fmt.Errorf("insert job: %w", err)
		}
		return nil
	}
}

// ended returns an error unless the job has failed as far as River still knows it. It is also
// running right after its letter was written, and for up to an hour (River's RescueStuckJobsAfter)
// if the process died at that moment.
func ended(ctx context.Context, client *river.Client[pgx.Tx], tx pgx.Tx, id int64) error {
	job, err := client.JobGetTx(ctx, tx, id)
	switch {
	case errors.Is(err, rivertype.ErrNotFound):
		return nil // a week ago, or more
	case err != nil:
		return fmt.Errorf("look for job %d: %w", id, err)
	case job.State != rivertype.JobStateDiscarded && job.State != rivertype.JobStateCancelled:
		return fmt.Errorf("job %d is %s in River", id, job.State)
	}
	return nil
}

// rawArgs are arguments that are encoded already.
type rawArgs struct {
	kind string
	json.RawMessage
}

func (a rawArgs) Kind() string { return a.kind }

func decode(id int64, letter deadletter.Letter) (args rawArgs, opts *river.InsertOpts, err error) {
	var p payload
	if err := json.Unmarshal(letter.Payload, &p); err != nil {
		return args, nil, fmt.Errorf("read payload: %w", err)
	}
	if p.Args == nil || p.River.Queue == "" {
		return args, nil,
			errors.New(`its payload lacks "args" or "river": one that replaces it must have both, as the letter has`)
	}
	metadata := map[string]any{}
	if p.River.Metadata != nil {
		var kept map[string]json.RawMessage
		if err := json.Unmarshal(p.River.Metadata, &kept); err != nil {
			return args, nil, fmt.Errorf("read metadata: %w", err)
		}
		for key, value := range kept {
			metadata[key] = value
		}
	}
	delete(metadata, cancelAttempted) // else River would cancel the new job instead of trying it again
	metadata[replayMetadata] = map[string]any{"letter": letter.ID, "job": id}
	text, err := json.Marshal(metadata)
	if err != nil {
		return args, nil, fmt.Errorf("encode metadata: %w", err)
	}
	return rawArgs{letter.Type, p.Args},
		&river.InsertOpts{Queue: p.River.Queue, Priority: p.River.Priority, MaxAttempts: p.River.MaxAttempts,
			Tags: p.River.Tags, Metadata: text}, nil
}
