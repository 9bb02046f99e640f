package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
)

// Change implements crawl.Store, in two round trips: begin, lock and look; write and commit.
//
// Events whose ids are in the log already, with the same type and payload, are not appended again.
// If all of them are, and the change has no To, the run may be in any status: it is a change whose
// reply was lost.
//
// A run whose log was ended by plain SQL, with its status forgotten, gets the status of its last
// event first, whatever becomes of c.
func (r *Runs) Change(
	ctx context.Context, tenant string, run uuid.UUID, c crawl.Change,
) (changed crawl.Changed, err error) {
	c.Events, err = identified(c.Events)
	if err == nil {
		err = checkJSON("state", c.Progress.State)
	}
	for again := true; again && err == nil; {
		err = r.db.Change(ctx, tenant, func(tx Tx) error {
			var l *crawl.Locked
			if l, again, err = r.lock(ctx, tx, tenant, run, c.Events); err != nil || again {
				return err
			}
			fresh := l.Fresh(c.Events)
			if err := l.Allows(c, fresh); err != nil {
				return err
			}
			changed, err = r.apply(ctx, tx, l, c, fresh)
			return err
		})
	}
	if err != nil {
		return crawl.Changed{}, fmt.Errorf("change run %s: %w", run, err)
	}
	return changed, nil
}

// identified returns the events with an id each, if their payloads are what a database takes.
func identified(events []crawl.NewEvent) ([]crawl.NewEvent, error) {
	for i, e := range events {
		if err := checkJSON(fmt.Sprintf("events[%d].payload", i), e.Payload); err != nil {
			return nil, err
		}
	}
	return crawl.Identified(events)
}

// lock locks a run and reads the end of its log, and which of the events are in it. One whose
// status does not agree with its log is given the status that its log ended with. That is a
// transaction of its own, because the caller's may be refused, and has to begin again.
func (r *Runs) lock(
	ctx context.Context, tx Tx, tenant string, run uuid.UUID, events []crawl.NewEvent,
) (l *crawl.Locked, again bool, err error) {
	l = &crawl.Locked{Known: map[uuid.UUID]int64{}}
	q := asked{Tenant: tenant, Run: run}
	found, logged := false, false
	var owner uuid.NullUUID
	var epoch int64
	asks := []Ask{{"run_lock", q, func(row Row) error {
		found = true
		return scanRun(row, &l.Run, &owner, &epoch)
	}}, {"run_last", q, func(row Row) error { return scanned(&logged, &l.Run.LastSeq, &l.LastType)(row) }}}
	given := make(map[uuid.UUID]crawl.NewEvent, len(events))
	for _, e := range events {
		given[e.ID] = e
		q.IDs = append(q.IDs, e.ID)
	}
	var reused error
	if len(events) > 0 {
		asks = append(asks, Ask{"run_known", q, func(row Row) error {
			var known crawl.Event
			err := row.Scan(&known.ID, &known.Seq, &known.Type, (*[]byte)(&known.Payload))
			if e := given[known.ID]; e.Type != known.Type || !sameJSON(e.Payload, known.Payload) {
				reused = fmt.Errorf("event %s: %w", known.ID, crawl.ErrEventReused)
			}
			l.Known[known.ID] = known.Seq
			return err
		}})
	}
	if err := tx.Run(ctx, asks...); err != nil {
		return nil, false, fmt.Errorf("lock: %w", err)
	}
	if !found {
		return nil, false, crawl.ErrNotFound
	}
	if owner.Valid {
		l.Lease = &crawl.Hold{Owner: owner.UUID, Epoch: epoch}
	}
	if forgotten := l.Forgotten(); forgotten != "" {
		if _, err := r.apply(ctx, tx, l, crawl.Change{To: forgotten, Error: l.Run.Error}, nil); err != nil {
			return nil, false, fmt.Errorf("settle its status: %w", err)
		}
		return nil, true, nil
	}
	return l, false, reused
}

// change is what run_change.sql is given.
type change struct {
	asked
	To, Error string
	Ends      bool // with any of the statuses that are final
	Now       time.Time
	Saves     bool // where a worker stands
	Progress  crawl.Progress
	State     any
}

// apply writes what is new and commits.
func (r *Runs) apply(
	ctx context.Context, tx Tx, l *crawl.Locked, c crawl.Change, fresh []crawl.NewEvent,
) (crawl.Changed, error) {
	run, now := l.Run, time.Now()
	asks := appending(run, fresh, now)
	if c.To != "" || c.Hold != nil {
		q := change{asked{Tenant: run.Tenant, Run: run.ID}, string(c.To), c.Error, c.To.Ended(), now, c.Hold != nil,
			c.Progress, text(c.Progress.State)}
		asks = append(asks, Ask{"run_change", q, func(row Row) error { return scanRun(row, &run) }})
	}
	if err := tx.Commit(ctx, asks...); err != nil {
		return crawl.Changed{}, refused(r.db, err, "events")
	}
	return l.Changed(run, len(fresh)), nil
}

// appended is what run_append.sql and run_send.sql are given: the events, and the same turned on
// their side.
type appended struct {
	asked
	Now             time.Time
	Events          []event
	Types, Payloads []string
}

type event struct {
	ID   uuid.UUID `json:"id"`
	Type string    `json:"type"`
	Text string    `json:"text"` // the payload
}

// appending appends events to log and outbox of a run that is locked, after its last. The outbox
// draws its positions in the order of the numbers and under the same lock, so the relay publishes a
// run's events in their order.
func appending(run crawl.Run, events []crawl.NewEvent, now time.Time) []Ask {
	if len(events) == 0 {
		return nil
	}
	q := appended{asked: asked{Tenant: run.Tenant, Run: run.ID, After: run.LastSeq}, Now: now}
	for _, e := range events {
		q.IDs, q.Types, q.Payloads = append(q.IDs, e.ID), append(q.Types, e.Type), append(q.Payloads, string(e.Payload))
		q.Events = append(q.Events, event{e.ID, e.Type, string(e.Payload)})
	}
	return []Ask{{Name: "run_append", Data: q}, {Name: "run_send", Data: q}}
}
