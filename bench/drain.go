package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// measurementLimit is for one measurement with what comes before and after it: nothing may stop a whole run.
const measurementLimit = 2 * drainLimit

// lateCopies is how long after its last event a side may still publish one twice.
const lateCopies = 300 * time.Millisecond

// drain has each side deliver a backlog to the same subscribed Redis, in rounds.
func drain(ctx context.Context, s *servers, o options) error {
	own, err := s.beside(ctx)
	if err != nil {
		return err
	}
	found := newFigures("drain", s, o)
	for range o.rounds {
		for _, one := range sides() { // interleaved, so that the machine's drift meets all of them
			if !strings.Contains(one.name, o.only) {
				continue
			}
			into := found.line(one.name, one.kind)
			into.Base = one.base
			if err := into.measure(ctx, func() error {
				return own.drainSide(ctx, one, o.rows/max(one.share, 1), into)
			}); err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
		}
	}
	return found.done(os.Stdout, o)
}

// drainSide measures one drain: from the moment the side's process is told to begin until its last event has arrived.
// Processor time counts until everything is settled, the rest until the process has ended.
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
	before, err := s.counted(ctx, "true")
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
	after, err := s.counted(ctx, "true")
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
