package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox/store/postgres"
)

// firstSecond is left out of latencies: pools and statement caches fill.
const firstSecond = time.Second

// latencyLine is a side and how its relay learns of a commit.
type latencyLine struct {
	name string
	side
	here   bool // the relay, ours, runs in the writers' process, which wakes it after each commit
	notify bool // the writers' process sends a NOTIFY after commits
}

func latencyLines() []latencyLine {
	events := relaying("outbox_events, mark", "", outboxTables[0], adr)
	optimistic := oagudoReader
	optimistic.opens = oagudoWriter(true)
	return []latencyLine{
		{name: "ours, in the writers' process", side: events, here: true},
		{name: "ours, another process", side: events},
		{name: "ours, another process, NOTIFY", side: events, notify: true},
		{name: "oagudo/outbox, polls", side: oagudoReader},
		{name: "oagudo/outbox, optimistic", side: optimistic},
		{name: "watermill-sql, queue", side: watermillQueue},
		{name: "River, 500 workers", side: riverTuned},
	}
}

// latency offers 1000 transactions a second, of a business row and an event, over 50 keys. It
// measures from the moment the commit returned until the subscriber has the message.
func latency(ctx context.Context, s *servers, o options, found *figures) error {
	length := time.Duration(o.seconds) * time.Second / time.Duration(o.rounds)
	var tasks []task
	for _, l := range latencyLines() {
		tasks = append(tasks, task{l.name, "", l.kind, func(ctx context.Context, into *line) error {
			return s.offer(ctx, l, length, into)
		}})
	}
	return found.measure(ctx, o, tasks)
}

func (s *servers) offer(ctx context.Context, l latencyLine, length time.Duration, into *line) (err error) {
	ctx, cancel := context.WithTimeout(ctx, length+measurementLimit)
	defer cancel()
	if err := s.ready(ctx, l.side, 0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.empty(context.WithoutCancel(ctx), l.side)) }()
	background, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() {
		stop()
		running.Wait()
		err = errors.Join(err, s.end())
	}()
	var wake []func(string)
	if l.here {
		relay, err := s.newRelay(outboxTables[0], s.sink)
		if err != nil {
			return err
		}
		wake = append(wake, relay.Wake)
		running.Go(func() { _ = relay.Run(background) })
	} else {
		if err := s.start(ctx, l.side); err != nil {
			return err
		}
		if err := s.child.begin(); err != nil {
			return err
		}
	}
	if l.notify {
		notifier, err := postgres.NewNotifier(s.app, 0)
		if err != nil {
			return err
		}
		wake = append(wake, notifier.Wake)
		running.Go(func() { _ = notifier.Run(background) })
	}
	write, closeWriter, err := l.opens(ctx, s, wake...)
	if err != nil {
		return err
	}
	defer closeWriter()

	const keys, perSecond = 50, 1000
	total := int((length + firstSecond).Seconds() * perSecond)
	got := newArrivals(total, keys)
	note := got.note
	s.subscriber.handle.Store(&note)
	defer s.subscriber.handle.Store(nil)
	spent := s.cpu()
	committed, err := onSchedule(ctx, total, keys, time.Second/perSecond, write)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	got.mu.Lock()
	behind := total - got.distinct
	got.mu.Unlock()
	spent = s.cpu().minus(spent)
	if err := got.wait(ctx, latencyLimit, s.child); err != nil {
		return err
	}
	time.Sleep(lateCopies)
	got.mu.Lock()
	defer got.mu.Unlock()
	var took []time.Duration
	for n := int(firstSecond.Seconds()*perSecond) + 1; n <= total; n++ {
		if at := got.at[n]; !at.IsZero() {
			took = append(took, max(at.Sub(committed[n]), 0))
		}
	}
	if len(took) == 0 {
		return errors.New("no event has arrived")
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	into.add("p50", ms(percentile(took, 0.5)))
	into.add("p99", ms(percentile(took, 0.99)))
	into.add("max", ms(took[len(took)-1]))
	into.add("behind", float64(behind))
	into.add("missing", float64(total-got.distinct))
	into.add("copies", float64(got.copies))
	into.add("inversions", float64(got.inversions))
	into.add("cpu_postgres", spent.postgres/float64(total)*1e5)
	if total > got.distinct && l.kind != peer {
		return fmt.Errorf("%d of %d events did not arrive in %v", total-got.distinct, total, latencyLimit)
	}
	return nil
}

// latencyLimit is how long the last events may take that are under way when all are written.
const latencyLimit = 20 * time.Second

// onSchedule writes events 1 to total, one each interval, by a writer for each key. A writer whose
// commits are slow falls behind its schedule, and then makes up for it. It returns when each commit
// had returned.
func onSchedule(ctx context.Context, total, keys int, interval time.Duration, write writing) ([]time.Time, error) {
	committed := make([]time.Time, total+1)
	failed := make([]error, keys)
	var writers sync.WaitGroup
	start := time.Now()
	for key := range keys {
		writers.Go(func() {
			for n := key; n <= total && failed[key] == nil; n += keys {
				if n == 0 {
					continue // numbers begin with 1
				}
				time.Sleep(time.Until(start.Add(time.Duration(n) * interval)))
				failed[key] = write(ctx, n, key)
				committed[n] = time.Now()
			}
		})
	}
	writers.Wait()
	return committed, errors.Join(failed...)
}
