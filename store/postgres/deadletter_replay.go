package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/replayplace"
)

// letterPlace is a locked letter.
type letterPlace struct {
	ID     uuid.UUID
	Source deadletter.Source
	replayplace.Place
}

// replaying is one page's transaction.
type replaying struct {
	*deadLetters
	tx      pgx.Tx
	request deadletter.ReplayRequest
	page    deadletter.ReplayPage
	done    []uuid.UUID // letters
}

// ReplayPage implements deadletter.Store. What it changes is one transaction: the rows it puts back, the letters'
// replayed_at, and the record of the action. It does not wake relays: who calls it knows from the page which tables
// have something to deliver.
func (d *deadLetters) ReplayPage(ctx context.Context, request deadletter.ReplayRequest) (deadletter.ReplayPage, error) {
	q, err := selected(request.Selection)
	if err != nil {
		return deadletter.ReplayPage{}, err
	}
	if q.After, err = replayplace.Parse(request.After); err != nil {
		return deadletter.ReplayPage{}, err
	}
	q.Limit = request.Limit
	for attempt := 1; ; attempt++ {
		r := replaying{deadLetters: d, request: request, page: deadletter.ReplayPage{Replayed: map[string]int{}}}
		err = d.inTx(ctx, request.Selection.Tenant, pgx.ReadWrite, func(tx pgx.Tx) error {
			r.tx = tx
			return r.run(ctx, q)
		})
		if err == nil {
			return r.page, nil
		}
		if attempt == pgtable.Attempts || !pgtable.Deadlocked(err) {
			return deadletter.ReplayPage{}, fmt.Errorf("replay dead letters: %w", err)
		}
	}
}

func (r *replaying) run(ctx context.Context, q letterQuery) error {
	if q.After == nil && len(q.IDs) > 0 {
		if err := r.absent(ctx, q); err != nil {
			return err
		}
	}
	letters, err := collect[letterPlace](ctx, r.tx, "dlq_lock", q)
	if err != nil {
		return err
	}
	if n := len(letters); n >= q.Limit && n > 0 {
		r.page.Next = letters[n-1].String()
	}
	for len(letters) > 0 {
		first := letters[0]
		n := slices.IndexFunc(letters, func(l letterPlace) bool { return l.Source != first.Source || l.Table != first.Table })
		if n < 0 {
			n = len(letters)
		}
		before := len(r.done)
		if first.Source == deadletter.SourceJob {
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

// finish marks what was put back and records it.
func (r *replaying) finish(ctx context.Context) error {
	if len(r.done) == 0 {
		return nil
	}
	sql, err := plain("dlq_mark")
	if err != nil {
		return err
	}
	tag, err := r.tx.Exec(ctx, sql, r.done)
	if err != nil {
		return fmt.Errorf("mark letters as replayed: %w", err)
	}
	if n := int(tag.RowsAffected()); n != len(r.done) {
		return fmt.Errorf("mark letters as replayed: %d of %d could be", n, len(r.done))
	}
	return pgtable.Audit(ctx, r.tx, r.request.Operator, "replay", len(r.done), r.request.Selection, map[string]any{
		"run": r.request.Run, "tables": r.page.Replayed, "skipped": len(r.page.Skipped),
		"payload_replaced": r.request.Payload != nil})
}

func (r *replaying) skip(why string, letters ...letterPlace) {
	for _, l := range letters {
		r.page.Skipped = append(r.page.Skipped, deadletter.Skipped{ID: l.ID, Why: why})
	}
}

// absent says of letters named by their ids why they are not among those to replay.
func (r *replaying) absent(ctx context.Context, q letterQuery) error {
	q.State, q.Limit = string(deadletter.StateAll), len(q.IDs)
	named, err := collect[deadletter.Letter](ctx, r.tx, "dlq_list", q)
	if err != nil {
		return err
	}
	for _, id := range q.IDs {
		i := slices.IndexFunc(named, func(l deadletter.Letter) bool { return l.ID == id })
		l := letterPlace{ID: id}
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

func (r *replaying) replayEvents(ctx context.Context, table string, letters []letterPlace) error {
	t, known := r.tables[table]
	switch {
	case table == "":
		r.skip("a consumer recorded it: it has no row to put back, so hand its payload to the consumer again", letters...)
		return nil
	case !known:
		r.skip(fmt.Sprintf("there is no table %s that this program knows: name it in DeadLettersConfig.Layouts, or map it "+
			"with --layouts", table), letters...)
		return nil
	case !r.visible(t, r.request.Selection.Tenant):
		r.skip(fmt.Sprintf("row-level security hides the rows of %s from this role: GRANT outbox_operator to it", table),
			letters...)
		return nil
	}
	revived, err := r.attempt(ctx, t, letters)
	if err != nil {
		return fmt.Errorf("put rows back into %s: %w", table, err)
	}
	var left []letterPlace
	for _, l := range letters {
		if revived[l.ID] {
			r.done = append(r.done, l.ID)
		} else if !slices.ContainsFunc(r.page.Skipped, func(s deadletter.Skipped) bool { return s.ID == l.ID }) {
			left = append(left, l)
		}
	}
	if len(left) == 0 {
		return nil
	}
	q := t.query(letterQuery{})
	sql, _, err := q.render("dlq_why")
	if err != nil {
		return err
	}
	rows, err := r.tx.Query(ctx, sql, idsOf(left))
	if err != nil {
		return fmt.Errorf("find out about rows of %s: %w", table, err)
	}
	why, err := pgx.CollectRows(rows, pgx.RowToStructByPos[deadletter.Skipped])
	if err != nil {
		return fmt.Errorf("find out about rows of %s: %w", table, err)
	}
	r.page.Skipped = append(r.page.Skipped, why...)
	return nil
}

func idsOf(letters []letterPlace) []uuid.UUID {
	ids := make([]uuid.UUID, len(letters))
	for i, l := range letters {
		ids[i] = l.ID
	}
	return ids
}

// attempt puts the events of letters back and returns the ids of the letters for which it could. If the server refuses
// what one of them contains (a run that was deleted meanwhile, a payload that a constraint forbids) it goes on in
// halves. Once that letter is alone, it is skipped.
func (r *replaying) attempt(
	ctx context.Context, t deadTable, letters []letterPlace,
) (revived map[uuid.UUID]bool, err error) {
	err = pgx.BeginFunc(ctx, r.tx, func(tx pgx.Tx) error { // a savepoint
		revived, err = r.revive(ctx, tx, t, letters)
		return err
	})
	if !ofTheData(err) {
		return revived, err
	}
	half := len(letters) / 2
	for half > 0 && half < len(letters) && letters[half].Event == letters[half-1].Event { // an event is not parted
		half++
	}
	if half == 0 || half == len(letters) {
		half = slices.IndexFunc(letters, func(l letterPlace) bool { return l.Event != letters[0].Event })
	}
	if half < 0 {
		var server *pgconn.PgError
		errors.As(err, &server)
		r.skip("its row cannot be put back: "+server.Message, letters...)
		return nil, nil
	}
	revived, err = r.attempt(ctx, t, letters[:half])
	if err != nil {
		return nil, err
	}
	more, err := r.attempt(ctx, t, letters[half:])
	if err != nil {
		return nil, err
	}
	all := map[uuid.UUID]bool{}
	for _, part := range []map[uuid.UUID]bool{revived, more} {
		for letter := range part {
			all[letter] = true
		}
	}
	return all, nil
}

func (r *replaying) revive(
	ctx context.Context, tx pgx.Tx, t deadTable, letters []letterPlace,
) (map[uuid.UUID]bool, error) {
	revived := map[uuid.UUID]bool{}
	q := t.query(letterQuery{Replace: r.request.Payload != nil})
	parts := [][]letterPlace{letters}
	if q.Owed { // each has a row of its own
		parts = replayplace.Apart(letters, func(l letterPlace) uuid.UUID { return l.Event })
	}
	for _, some := range parts {
		events, err := r.reviveEvents(ctx, tx, q, some)
		if err != nil {
			return nil, err
		}
		for _, l := range some {
			if events[l.Event] {
				revived[l.ID] = true
			}
		}
	}
	return revived, nil
}

// reviveEvents returns the events that it has put back.
func (r *replaying) reviveEvents(
	ctx context.Context, tx pgx.Tx, q letterQuery, letters []letterPlace,
) (map[uuid.UUID]bool, error) {
	revived := map[uuid.UUID]bool{}
	var statements []string
	if !q.IsLog() && (!q.DeleteDead || q.Destinations != "") { // else there is no row to be found
		statements = append(statements, "dlq_revive")
	}
	if q.DeleteDead {
		statements = append(statements, "dlq_insert")
	}
	for _, name := range statements {
		left := slices.DeleteFunc(slices.Clone(letters), func(l letterPlace) bool { return revived[l.Event] })
		sql, _, err := q.render(name)
		if err != nil {
			return nil, err
		}
		rows, err := tx.Query(ctx, sql, idsOf(left), r.request.Payload)
		if err != nil {
			return nil, err
		}
		events, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			revived[e] = true
		}
	}
	return revived, nil
}

// replayJobs hands letters of jobs to who runs them, each with a savepoint of its own.
func (r *replaying) replayJobs(ctx context.Context, letters []letterPlace) error {
	if r.jobs == nil {
		r.skip("it is of a job: the program that runs the jobs can replay it, with the adapter of its runner", letters...)
		return nil
	}
	full, err := collect[deadletter.Letter](ctx, r.tx, "dlq_show", letterQuery{IDs: idsOf(letters)})
	if err != nil {
		return err
	}
	full = dated(full)
	for _, l := range letters {
		letter := full[slices.IndexFunc(full, func(f deadletter.Letter) bool { return f.ID == l.ID })]
		if r.request.Payload != nil {
			letter.Payload = r.request.Payload
		}
		err := pgx.BeginFunc(ctx, r.tx, func(tx pgx.Tx) error { return r.jobs(ctx, tx, letter) })
		if err != nil && (ctx.Err() != nil || r.tx.Conn().IsClosed()) {
			return err
		}
		if err != nil {
			r.skip("its runner did not take it: "+err.Error(), l)
			continue
		}
		r.done = append(r.done, l.ID)
	}
	return nil
}
