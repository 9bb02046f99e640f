package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/replayplace"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
)

// letterPlace is a letter that is to be replayed.
type letterPlace struct {
	id     uuid.UUID
	source deadletter.Source
	replayplace.Place
}

// replaying is one page's transaction.
type replaying struct {
	*deadLetters
	tx      *sql.Tx
	request deadletter.ReplayRequest
	page    deadletter.ReplayPage
	done    []uuid.UUID // letters
}

// ReplayPage implements deadletter.Store. What it changes is one transaction: the rows it puts back, the letters'
// replayed_at, and the record of the action. A relay of another process learns of it at its next poll.
func (d *deadLetters) ReplayPage(ctx context.Context, request deadletter.ReplayRequest) (deadletter.ReplayPage, error) {
	q, err := selected(request.Selection)
	if err != nil {
		return deadletter.ReplayPage{}, err
	}
	if q.After, err = replayplace.Parse(request.After); err != nil {
		return deadletter.ReplayPage{}, err
	}
	q.Limit = request.Limit
	r := replaying{deadLetters: d, request: request, page: deadletter.ReplayPage{Replayed: map[string]int{}}}
	err = d.db.inTx(ctx, func(tx *sql.Tx) error {
		r.tx = tx
		return r.run(ctx, q)
	})
	if err != nil {
		return deadletter.ReplayPage{}, fmt.Errorf("replay dead letters: %w", explain(err))
	}
	return r.page, nil
}

func (r *replaying) run(ctx context.Context, q *letterQuery) error {
	if q.After == nil && len(q.IDs) > 0 {
		if err := r.absent(ctx, *q); err != nil {
			return err
		}
	}
	letters, err := r.next(ctx, q)
	if err != nil {
		return err
	}
	if n := len(letters); n >= q.Limit && n > 0 {
		r.page.Next = letters[n-1].String()
	}
	for len(letters) > 0 {
		first := letters[0]
		n := slices.IndexFunc(letters, func(l letterPlace) bool { return l.source != first.source || l.Table != first.Table })
		if n < 0 {
			n = len(letters)
		}
		before := len(r.done)
		if first.source == deadletter.SourceJob {
			err = r.replayJobs(ctx, letters[:n])
		} else {
			err = r.replayEvents(ctx, first.Table, letters[:n])
		}
		if err != nil {
			return err
		}
		if replayed := len(r.done) - before; replayed > 0 {
			r.page.Replayed[first.Table] += replayed
		}
		letters = letters[n:]
	}
	return r.finish(ctx)
}

// errPageFull ends the reading of a page.
var errPageFull = errors.New("page is full")

// next reads the letters of the page. Those of an event are never parted.
func (r *replaying) next(ctx context.Context, q *letterQuery) (letters []letterPlace, err error) {
	read := func(rows *sql.Rows) error {
		var l letterPlace
		if err := rows.Scan(&l.id, &l.source, &l.Event, &l.Table, &l.Position); err != nil {
			return err
		}
		if n := len(letters); n >= q.Limit && (n == 0 || letters[n-1].Place != l.Place) {
			return errPageFull
		}
		letters = append(letters, l)
		return nil
	}
	err = q.each(ctx, r.tx, "dlq_lock", read)
	if err == nil && q.After != nil {
		q.Rest = true
		err = q.each(ctx, r.tx, "dlq_lock", read)
	}
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return letters, err
}

// finish marks what was put back and records it.
func (r *replaying) finish(ctx context.Context) error {
	if len(r.done) == 0 {
		return nil
	}
	statement, err := plain("dlq_mark")
	if err != nil {
		return err
	}
	ids, err := json.Marshal(r.done)
	if err != nil {
		return fmt.Errorf("encode ids: %w", err)
	}
	if _, err := r.tx.ExecContext(ctx, statement, string(ids), stamp(time.Now())); err != nil {
		return fmt.Errorf("mark letters as replayed: %w", err)
	}
	return sqlitetable.Audit(ctx, r.tx, r.request.Operator, "replay", len(r.done), r.request.Selection, map[string]any{
		"run": r.request.Run, "tables": r.page.Replayed, "skipped": len(r.page.Skipped),
		"payload_replaced": r.request.Payload != nil})
}

func (r *replaying) skip(why string, letters ...letterPlace) {
	for _, l := range letters {
		r.page.Skipped = append(r.page.Skipped, deadletter.Skipped{ID: l.id, Why: why})
	}
}

// absent says of letters named by their ids why they are not among those to replay.
func (r *replaying) absent(ctx context.Context, q letterQuery) error {
	q.State, q.Limit = string(deadletter.StateAll), len(q.IDs)
	named, err := q.letters(ctx, r.tx, "dlq_list")
	if err != nil {
		return err
	}
	for _, id := range q.IDs {
		i := slices.IndexFunc(named, func(l deadletter.Letter) bool { return l.ID == id })
		l := letterPlace{id: id}
		switch {
		case i < 0:
			r.skip("there is no letter with this id", l)
		case named[i].State == deadletter.StateReplayed:
			r.skip("it was replayed already", l)
		case named[i].State == deadletter.StateDiscarded && !r.request.Selection.Discarded:
			r.skip("it was discarded, and --discarded is not set", l)
		}
	}
	return nil
}

// replayJobs hands letters of jobs to who runs them, each with a savepoint of its own.
func (r *replaying) replayJobs(ctx context.Context, letters []letterPlace) error {
	if r.jobs == nil {
		r.skip("it is of a job: the program that runs the jobs can replay it, with the adapter of its runner", letters...)
		return nil
	}
	q := letterQuery{IDs: idsOf(letters)}
	full, err := q.letters(ctx, r.tx, "dlq_show")
	if err != nil {
		return err
	}
	for _, l := range letters {
		letter := full[slices.IndexFunc(full, func(f deadletter.Letter) bool { return f.ID == l.id })]
		if r.request.Payload != nil {
			letter.Payload = r.request.Payload
		}
		refused, err := r.savepoint(ctx, func() error { return r.jobs(ctx, r.tx, letter) })
		if err != nil {
			return err
		}
		if refused != nil {
			r.skip("its runner did not take it: "+refused.Error(), l)
			continue
		}
		r.done = append(r.done, l.id)
	}
	return nil
}

// savepoint runs fn, and undoes what it did in the transaction if it fails; its error is refused then. err says that
// the transaction is lost.
func (r *replaying) savepoint(ctx context.Context, fn func() error) (refused, err error) {
	if _, err := r.tx.ExecContext(ctx, "SAVEPOINT part"); err != nil {
		return nil, fmt.Errorf("set savepoint: %w", err)
	}
	if refused = fn(); refused != nil {
		if _, err := r.tx.ExecContext(ctx, "ROLLBACK TO part"); err != nil {
			return nil, errors.Join(refused, fmt.Errorf("roll back to savepoint: %w", err))
		}
	}
	if _, err := r.tx.ExecContext(ctx, "RELEASE part"); err != nil {
		return nil, fmt.Errorf("release savepoint: %w", err)
	}
	return refused, nil
}

func idsOf(letters []letterPlace) []uuid.UUID {
	ids := make([]uuid.UUID, len(letters))
	for i, l := range letters {
		ids[i] = l.id
	}
	return ids
}
