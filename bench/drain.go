package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// drainLimit is how long one drain may take before it counts as lost.
const drainLimit = 2 * time.Minute

// measurementLimit is for one measurement with what comes before and after it: nothing may stop a
// whole run.
const measurementLimit = 2 * drainLimit

// lateCopies is how long after its last event a side may still publish one twice.
const lateCopies = 300 * time.Millisecond

// drain has each side deliver a backlog to the same subscribed Redis, in rounds.
func drain(ctx context.Context, s *servers, o options, found *figures) error {
	var tasks []task
	for _, one := range sides() {
		tasks = append(tasks, s.draining(one, o.rows/max(one.share, 1)))
	}
	return found.measure(ctx, o, tasks)
}

// flat shows that neither a large backlog nor many delivered rows slow the relay down.
func flat(ctx context.Context, s *servers, o options, found *figures) error {
	relay := relaying("outbox_events, mark, ADR-004's indexes", "", outboxTables[0], adr)
	many := relay
	many.delivered = o.delivered
	least := bare("bare loop, mark", outboxTables[0])
	first := fmt.Sprintf("backlog of %d, empty table", o.rows)
	large := fmt.Sprintf("backlog of %d, empty table", o.backlog)
	beside := fmt.Sprintf("backlog of %d, %d delivered rows in the table", o.rows, o.delivered)
	tasks := []task{
		s.draining(relay, o.rows).called(first, first),
		s.draining(relay, o.backlog).called(large, first),
		s.draining(least, o.backlog).called("the same, bare loop with the least SQL", first),
		s.draining(many, o.rows).called(beside, first),
	}
	return found.measure(ctx, o, tasks)
}

// draining is a round of drainSide.
func (s *servers) draining(one side, rows int) task {
	return task{one.name, one.base, one.kind, func(ctx context.Context, into *line) error {
		return s.drainSide(ctx, one, rows, into)
	}}
}

// called is the same measurement by another name, compared with another line.
func (t task) called(name, base string) task {
	t.name, t.base = name, base
	return t
}

// drainSide measures one drain: from the moment the side's process is told to begin until its last
// event has arrived. Processor time counts until everything is settled, the rest until the process
// has ended.
func (s *servers) drainSide(ctx context.Context, one side, rows int, into *line) (err error) {
	ctx, cancel := context.WithTimeout(ctx, measurementLimit)
	defer cancel()
	if err := s.ready(ctx, one, rows); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.empty(context.WithoutCancel(ctx), one)) }()
	began := time.Now()
	if err := s.start(ctx, one); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	got := newArrivals(rows, 1000)
	note := got.note
	s.subscriber.handle.Store(&note)
	defer s.subscriber.handle.Store(nil)
	before, err := s.counted(ctx)
	if err != nil {
		return err
	}
	spent, start := s.cpu(), time.Now()
	if err := s.child.begin(); err != nil {
		return err
	}
	if err := got.wait(ctx, drainLimit, s.child); err != nil {
		return err
	}
	if err := s.settled(ctx, one); err != nil {
		return err
	}
	spent = s.cpu().minus(spent)
	time.Sleep(lateCopies)
	if err := s.end(); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	if err := s.sessionsEnded(ctx, began); err != nil {
		return err
	}
	after, err := s.counted(ctx)
	if err != nil {
		return err
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if got.distinct == 0 {
		return fmt.Errorf("no event has arrived in %v", drainLimit)
	}
	events := float64(got.distinct)
	into.add("rate", events/got.last().Sub(start).Seconds())
	into.add("missing", float64(rows-got.distinct))
	into.add("copies", float64(got.copies))
	into.add("inversions", float64(got.inversions))
	into.add("cpu_postgres", spent.postgres/events*1e5)
	into.add("cpu_redis", spent.redis/events*1e5)
	into.add("cpu_relay", spent.child/events*1e5)
	into.add("cpu_subscriber", spent.self/events*1e5)
	into.add("wal", (after.wal-before.wal)/events)
	into.add("dead", (after.updates-before.updates)/events)
	if rows > got.distinct && one.kind != peer {
		return fmt.Errorf("%d of %d events did not arrive in %v", rows-got.distinct, rows, drainLimit)
	}
	return nil
}

// settled waits until the side has nothing left to settle, or for as long as a drain may take.
func (s *servers) settled(ctx context.Context, one side) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var busy bool
		if err := s.app.QueryRow(ctx, one.busy).Scan(&busy); err != nil {
			return fmt.Errorf("ask for what is left: %w", err)
		}
		if !busy || time.Now().After(deadline) {
			return nil
		}
	}
}

// written is what the server has counted so far: rows updated or deleted in any table, and bytes of
// its log.
type written struct{ updates, wal float64 }

func (s *servers) counted(ctx context.Context) (w written, err error) {
	err = s.app.QueryRow(ctx, `SELECT sum(n_tup_upd + n_tup_del), pg_current_wal_lsn() - '0/0'
		FROM pg_stat_user_tables`).Scan(&w.updates, &w.wal)
	return w, err
}

// sessionsEnded waits for the ends of the sessions since began, which count rows when they end, if
// not before.
func (s *servers) sessionsEnded(ctx context.Context, began time.Time) error {
	s.app.Reset()
	for sessions := 1; sessions > 0; time.Sleep(20 * time.Millisecond) {
		if err := s.app.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND backend_start > $1`,
			began).Scan(&sessions); err != nil {
			return err
		}
	}
	return nil
}
