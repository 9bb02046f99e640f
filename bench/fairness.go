package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/outboxrelay/outbox/relay"
)

// fairness queues a flood of one tenant and measures what another's trickle, ten events a second, waits for meanwhile:
// from commit to subscriber. Without the index by tenant a relay claims by age alone.
func fairness(ctx context.Context, s *servers, o options) error {
	var index string
	if err := s.app.QueryRow(ctx,
		"SELECT indexdef FROM pg_indexes WHERE indexname = 'outbox_events_tenants'").Scan(&index); err != nil {
		return fmt.Errorf("look for the index by tenant: %w", err)
	}
	fmt.Printf("%-52s %9s %9s %9s %9s %14s\n", "a tenant that writes 10 events a second", "p50 ms", "p99 ms", "max ms",
		"events", "flood events/s")
	if err := trickle(ctx, s, "alone", 0); err != nil {
		return err
	}
	if err := trickle(ctx, s, fmt.Sprintf("beside another's %d, claims shared", o.backlog), o.backlog); err != nil {
		return err
	}
	if err := s.exec(ctx, "DROP INDEX outbox_events_tenants"); err != nil {
		return err
	}
	if err := trickle(ctx, s, fmt.Sprintf("beside another's %d, by age alone", o.backlog), o.backlog); err != nil {
		return err
	}
	return s.exec(ctx, "TRUNCATE outbox_events", index)
}

// trickle writes while the flood drains, or without one for twenty seconds.
func trickle(ctx context.Context, s *servers, name string, flood int) error {
	t := outboxTables[0]
	t.fill = `INSERT INTO outbox_events (event_topic, occurred_at, tenant_id, aggregate_type, aggregate_id, source_bc, payload)
		SELECT 'flood', now(), 'flood', 'Order', (i % 1000)::text, 'shop', jsonb_build_object('n', i, 'pad', repeat('x', 475)) FROM generate_series(1, $1::int) i`
	if err := s.refill(ctx, t, flood); err != nil {
		return err
	}
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	var mu sync.Mutex
	arrived := map[int]time.Time{}
	handle := func(channel, _ []byte, at time.Time) {
		// The topic, which is cheaper to look at than the message.
		if n, err := strconv.Atoi(string(channel)); err == nil {
			mu.Lock()
			arrived[n] = at
			mu.Unlock()
		}
	}
	s.subscriber.handle.Store(&handle)
	defer s.subscriber.handle.Store(nil)
	from, start := s.subscriber.count.Load(), time.Now()

	ctx, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	relay, err := s.newRelay(t, relay.Config{})
	if err != nil {
		return err
	}
	background.Go(func() { _ = relay.Run(ctx) })

	var committed []time.Time
	var drained time.Duration
	for tick := start; drained == 0; tick = tick.Add(100 * time.Millisecond) {
		time.Sleep(time.Until(tick))
		if _, err := s.app.Exec(ctx, `INSERT INTO outbox_events (event_topic, occurred_at, tenant_id, aggregate_type, aggregate_id, source_bc, payload)
			VALUES ($1::int::text, now(), 'trickle', 'Order', $1::int % 20, 'shop', jsonb_build_object('pad', repeat('x', 475)))`, len(committed)); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		committed = append(committed, time.Now())
		if d := time.Since(start); flood > 0 && s.subscriber.count.Load()-from >= int64(flood) || d > 5*time.Minute ||
			flood == 0 && d > 20*time.Second {
			drained = d
		}
	}
	if err := s.subscriber.wait(ctx, from, flood+len(committed)); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	var took []time.Duration
	for n, at := range committed {
		got, ok := arrived[n]
		if !ok {
			return fmt.Errorf("event %d did not arrive", n)
		}
		took = append(took, max(got.Sub(at), 0))
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	fmt.Printf("%-52s %9.2f %9.2f %9.2f %9d %14.0f\n", name, ms(percentile(took, 0.5)), ms(percentile(took, 0.99)),
		ms(took[len(took)-1]), len(took), float64(flood)/drained.Seconds())
	return nil
}
