package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

// The load: so many events a second, ten to a transaction of one business row, by 50 writers with ten keys each.
const (
	loadRate, loadBatch, loadWriters = 20_000, 10, 50
	loadLasts                        = 15 * time.Second
)

// load offers 20,000 events a second to a table that nobody reads, and then beside a relay in another process. A relay
// that falls behind is seen in what is under way when the last event is committed, and in the times of the last third.
func load(ctx context.Context, s *servers, o options) error {
	own, err := s.beside(ctx)
	if err != nil {
		return err
	}
	var alone float64
	fmt.Printf("%-32s %10s %6s   %s\n", "20,000 events/s offered", "accepted/s", "ratio",
		"commit to subscriber, p50 and p99 ms: first third, last third; under way at the end")
	for _, one := range []string{"", "outbox_events, mark", "outbox_events, delete", "outbox_log"} {
		var rates, firsts, lasts, under []float64
		var tails [2][]float64
		for range o.rounds {
			m, err := own.loaded(ctx, one)
			if err != nil {
				return fmt.Errorf("%s: %w", one, err)
			}
			rates, under = append(rates, m.rate), append(under, m.under)
			firsts, lasts = append(firsts, m.p50[0]), append(lasts, m.p50[1])
			tails[0], tails[1] = append(tails[0], m.p99[0]), append(tails[1], m.p99[1])
		}
		if one == "" {
			alone = median(rates)
			fmt.Printf("%-32s %10.0f %6.2f\n", "outbox_events, without a relay", alone, 1.0)
			continue
		}
		fmt.Printf("%-32s %10.0f %6.2f   %.1f and %.0f, %.1f and %.0f; %.0f  (wanted: 0.90)\n", one, median(rates),
			median(rates)/alone, median(firsts), median(tails[0]), median(lasts), median(tails[1]), median(under))
	}
	return nil
}

// loaded is what one run of the load gave; times in ms, of the first and of the last third of the events.
type loaded struct {
	rate, under float64
	p50, p99    [2]float64
}

func (s *servers) loaded(ctx context.Context, name string) (m loaded, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadLasts+measurementLimit)
	defer cancel()
	one, table := side{tables: []string{"outbox_events"}, indexes: lean}, ""
	if name != "" {
		if one, err = sideCalled(name); err != nil {
			return m, err
		}
		table = one.tables[0]
	}
	if err := s.ready(ctx, one, 0); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.empty(context.WithoutCancel(ctx), one)) }()
	transactions := int(loadLasts.Seconds()) * loadRate / loadBatch
	total := transactions * loadBatch
	got := newArrivals(total, loadWriters*loadBatch)
	note := got.note
	s.subscriber.handle.Store(&note)
	defer s.subscriber.handle.Store(nil)
	if name != "" {
		if err := s.start(ctx, one); err != nil {
			return m, err
		}
		defer func() { err = errors.Join(err, s.end()) }()
		if err := s.child.begin(); err != nil {
			return m, err
		}
	}
	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop", Table: table})
	if err != nil {
		return m, err
	}
	// A key is one writer's: transaction t has the events up to 10 t, and those with the same number modulo 500 are the
	// same writer's.
	write := func(ctx context.Context, t, writer int) error {
		return w.InTx(ctx, s.app, func(tx pgx.Tx) (events []outbox.Event, err error) {
			for n := (t-1)*loadBatch + 1; n <= t*loadBatch; n++ {
				e, err := event(n, n%(loadWriters*loadBatch))
				if err != nil {
					return nil, err
				}
				events = append(events, e)
			}
			return events, business(ctx, tx, writer)
		})
	}
	began := time.Now()
	committed, err := onSchedule(ctx, transactions, loadWriters, time.Second*loadBatch/loadRate, write)
	if err != nil {
		return m, fmt.Errorf("write: %w", err)
	}
	m.rate = float64(total) / slices.MaxFunc(committed, time.Time.Compare).Sub(began).Seconds()
	if name == "" {
		return m, nil
	}
	got.mu.Lock()
	m.under = float64(total - got.distinct)
	got.mu.Unlock()
	if err := got.wait(ctx, latencyLimit, s.child); err != nil {
		return m, err
	}
	time.Sleep(lateCopies)
	got.mu.Lock()
	defer got.mu.Unlock()
	if got.distinct < total || got.copies > 0 || got.inversions > 0 {
		return m, fmt.Errorf("%d of %d events arrived, %d copies, %d out of order", got.distinct, total, got.copies,
			got.inversions)
	}
	for i, from := range []int{1, total - total/3 + 1} {
		var took []time.Duration
		for n := from; n < from+total/3; n++ {
			took = append(took, max(got.at[n].Sub(committed[(n-1)/loadBatch+1]), 0))
		}
		slices.Sort(took)
		m.p50[i] = percentile(took, 0.5).Seconds() * 1000
		m.p99[i] = percentile(took, 0.99).Seconds() * 1000
	}
	return m, nil
}
