package letters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/replayplace"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// place is a letter that is to be replayed.
type place struct {
	id     uuid.UUID
	source deadletter.Source
	replayplace.Place
}

// replaying is one page's transaction.
type replaying struct {
	*Store
	tx      *cold.Tx
	request deadletter.ReplayRequest
	page    deadletter.ReplayPage
	done    []uuid.UUID // letters
}

// ReplayPage implements deadletter.Store. What it changes is one transaction: the rows it puts
// back, the letters' replayed_at, and the record of the action. It does not wake relays: who calls
// it knows from the page which tables have something to deliver.
func (d *Store) ReplayPage(ctx context.Context, request deadletter.ReplayRequest) (deadletter.ReplayPage, error) {
	q, err := selected(request.Selection)
	if err != nil {
		return deadletter.ReplayPage{}, err
	}
	if q.After, err = replayplace.Parse(request.After); err != nil {
		return deadletter.ReplayPage{}, err
	}
	q.Limit = request.Limit
	var r replaying
	err = d.write(ctx, request.Selection.Tenant, func(tx *cold.Tx) error {
		r = replaying{Store: d, tx: tx, request: request, page: deadletter.ReplayPage{Replayed: map[string]int{}}}
		return r.run(ctx, q)
	})
	if err != nil {
		return deadletter.ReplayPage{}, fmt.Errorf("replay dead letters: %w", err)
	}
	return r.page, nil
}

func (r *replaying) run(ctx context.Context, q *Query) error {
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
		n := slices.IndexFunc(letters, func(l place) bool { return l.source != first.source || l.Table != first.Table })
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

// next locks and reads the letters of the page. Those of an event are never parted, which a LIMIT
// could do.
func (r *replaying) next(ctx context.Context, q *Query) (letters []place, err error) {
	err = r.tx.Each(ctx, "dlq_lock", q, func(rows cold.Rows) error {
		var l place
		if err := rows.Scan(&l.id, &l.source, &l.Event, &l.Table, &l.Position); err != nil {
			return err
		}
		if n := len(letters); n >= q.Limit && (n == 0 || letters[n-1].Place != l.Place) {
			return errPageFull
		}
		letters = append(letters, l)
		return nil
	})
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
	n, err := r.tx.Change(ctx, "dlq_mark", &Query{IDs: r.done, Now: time.Now()})
	if err == nil && n != len(r.done) {
		err = fmt.Errorf("%d of %d could be", n, len(r.done))
	}
	if err != nil {
		return fmt.Errorf("mark letters as replayed: %w", err)
	}
	by := r.request.Operator
	return r.tx.Record(ctx, cold.Action{Actor: by.Actor, Action: "replay", Reason: by.Reason, Rows: n,
		Filter: recorded(r.request.Selection), Detail: map[string]any{
			"run": r.request.Run, "tables": r.page.Replayed, "skipped": len(r.page.Skipped),
			"payload_replaced": r.request.Payload != nil}})
}

func (r *replaying) skip(why string, letters ...place) {
	for _, l := range letters {
		r.page.Skipped = append(r.page.Skipped, deadletter.Skipped{ID: l.id, Why: why})
	}
}

// absent says of letters named by their ids why they are not among those to replay.
func (r *replaying) absent(ctx context.Context, q Query) error {
	q.State, q.Limit = string(deadletter.StateAll), len(q.IDs)
	named, err := list(ctx, r.tx, "dlq_list", &q)
	if err != nil {
		return err
	}
	for _, id := range q.IDs {
		i := slices.IndexFunc(named, func(l deadletter.Letter) bool { return l.ID == id })
		l := place{id: id}
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
func (r *replaying) replayJobs(ctx context.Context, letters []place) error {
	if r.jobs == nil {
		r.skip("it is of a job: the program that runs the jobs can replay it, with the adapter of "+
			"its runner", letters...)
		return nil
	}
	full, err := list(ctx, r.tx, "dlq_show", &Query{IDs: idsOf(letters)})
	if err != nil {
		return err
	}
	for _, l := range letters {
		letter := full[slices.IndexFunc(full, func(f deadletter.Letter) bool { return f.ID == l.id })]
		if r.request.Payload != nil {
			letter.Payload = r.request.Payload
		}
		refused, err := r.tx.Savepoint(ctx, func() error { return r.jobs(ctx, r.tx, letter) })
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

func idsOf(letters []place) []uuid.UUID {
	ids := make([]uuid.UUID, len(letters))
	for i, l := range letters {
		ids[i] = l.id
	}
	return ids
}

// replayEvents puts the events of one table's letters back, and says of the others why it did not.
func (r *replaying) replayEvents(ctx context.Context, table string, letters []place) error {
	t, known := r.tables[table]
	switch {
	case table == "":
		r.skip("a consumer recorded it: it has no row to put back, so hand its payload to the "+
			"consumer again", letters...)
		return nil
	case !known:
		r.skip(fmt.Sprintf("there is no table %s that this program knows: name it in "+
			"DeadLettersConfig.Layouts, or map it "+
			"with --layouts", table), letters...)
		return nil
	case !r.visible(t, r.request.Selection.Tenant):
		r.skip(fmt.Sprintf("row-level security hides the rows of %s from this role: GRANT "+
			"outbox_operator to it", table),
			letters...)
		return nil
	}
	revived, err := r.attempt(ctx, t, letters)
	if err != nil {
		return fmt.Errorf("put rows back into %s: %w", table, err)
	}
	var left []place
	for _, l := range letters {
		if revived[l.id] {
			r.done = append(r.done, l.id)
		} else if !slices.ContainsFunc(r.page.Skipped, func(s deadletter.Skipped) bool { return s.ID == l.id }) {
			left = append(left, l)
		}
	}
	if len(left) == 0 {
		return nil
	}
	err = r.tx.Each(ctx, "dlq_why", t.query(Query{IDs: idsOf(left)}), func(rows cold.Rows) error {
		var s deadletter.Skipped
		defer func() { r.page.Skipped = append(r.page.Skipped, s) }()
		return rows.Scan(&s.ID, &s.Why)
	})
	if err != nil {
		return fmt.Errorf("find out about rows of %s: %w", table, err)
	}
	return nil
}

// attempt puts the events of letters back and returns the ids of the letters for which it could. If
// the database refuses what one of them contains (a run that was deleted meanwhile, a payload that
// a constraint forbids) it goes on in halves. Once that letter is alone, it is skipped.
func (r *replaying) attempt(ctx context.Context, t table, letters []place) (revived map[uuid.UUID]bool, err error) {
	refused, err := r.tx.Savepoint(ctx, func() (err error) {
		revived, err = r.revive(ctx, t, letters)
		return err
	})
	if err != nil {
		return nil, err
	}
	words, ofTheData := r.db.Refused(refused)
	if !ofTheData {
		return revived, refused
	}
	half := len(letters) / 2
	for half > 0 && half < len(letters) && letters[half].Event == letters[half-1].Event { // an event is not parted
		half++
	}
	if half == 0 || half == len(letters) {
		half = slices.IndexFunc(letters, func(l place) bool { return l.Event != letters[0].Event })
	}
	if half < 0 && t.layout.Table == subscribed.Table {
		r.skip("its subscription was removed; a later one of the same name does not get it", letters...)
		return nil, nil
	}
	if half < 0 {
		r.skip("its row cannot be put back: "+words, letters...)
		return nil, nil
	}
	all := map[uuid.UUID]bool{}
	for _, part := range [][]place{letters[:half], letters[half:]} {
		some, err := r.attempt(ctx, t, part)
		if err != nil {
			return nil, err
		}
		for letter := range some {
			all[letter] = true
		}
	}
	return all, nil
}

func (r *replaying) revive(ctx context.Context, t table, letters []place) (map[uuid.UUID]bool, error) {
	revived := map[uuid.UUID]bool{}
	q := t.query(Query{Replace: r.request.Payload != nil, Body: string(r.request.Payload)})
	parts := [][]place{letters}
	if q.Owed { // each has a row of its own
		parts = replayplace.Apart(letters, func(l place) uuid.UUID { return l.Event })
	}
	for _, some := range parts {
		events, err := r.reviveEvents(ctx, *q, some)
		if err != nil {
			return nil, err
		}
		for _, l := range some {
			if events[l.Event] {
				revived[l.id] = true
			}
		}
	}
	return revived, nil
}

// reviveEvents returns the events that it has put back.
func (r *replaying) reviveEvents(ctx context.Context, q Query, letters []place) (map[uuid.UUID]bool, error) {
	revived := map[uuid.UUID]bool{}
	var statements []string
	if q.KeepsState() && (!q.DeleteDead || q.Destinations != "") { // else there is no row to be found
		statements = append(statements, "dlq_revive")
	}
	if q.DeleteDead {
		statements = append(statements, "dlq_insert")
	}
	for _, name := range statements {
		q.IDs = idsOf(slices.DeleteFunc(slices.Clone(letters), func(l place) bool { return revived[l.Event] }))
		err := r.tx.Each(ctx, name, &q, func(rows cold.Rows) error {
			var event sqltable.Text
			err := rows.Scan(&event)
			id, _ := sqltable.ParseID(event)
			revived[id] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return revived, nil
}
