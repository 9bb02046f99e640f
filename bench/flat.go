package main

import (
	"context"
	"fmt"
)

// flat shows that neither a large backlog nor many delivered rows slow the relay down.
func flat(ctx context.Context, s *servers, o options) error {
	t := outboxTables[0]
	fmt.Printf("%-60s %12s %8s\n", "outbox_events, relay", "events/s", "ratio")
	var rates []float64
	for range o.rounds {
		if err := s.refill(ctx, t, o.rows); err != nil {
			return err
		}
		rate, err := s.timeDrain(ctx, t, o.rows, relayLoop)
		if err != nil {
			return err
		}
		rates = append(rates, rate)
	}
	base := median(rates)
	fmt.Printf("%-60s %12.0f %8.2f\n", fmt.Sprintf("backlog of %d, empty table", o.rows), base, 1.0)
	if err := s.refill(ctx, t, o.backlog); err != nil {
		return err
	}
	before := s.cpu()
	large, err := s.timeDrain(ctx, t, o.backlog, relayLoop)
	if err != nil {
		return err
	}
	fmt.Printf("%-60s %12.0f %8.2f   %s  (wanted: 0.80)\n", fmt.Sprintf("backlog of %d, empty table", o.backlog), large,
		large/base, s.cpu().per(before, o.backlog))
	if err := s.refill(ctx, t, o.backlog); err != nil {
		return err
	}
	bare, err := s.timeDrain(ctx, t, o.backlog, bareLoop)
	if err != nil {
		return err
	}
	fmt.Printf("%-60s %12.0f %8.2f   %s\n", "the same, bare loop with the least SQL", bare, bare/base, "")

	delivered := t
	delivered.fill = `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, status, processed_at)
		SELECT 'order.placed', now(), 'Order', (i % 1000)::text, 'shop', jsonb_build_object('n', i, 'pad', repeat('x', 475)), 'SENT', now() FROM generate_series(1, $1::int) i`
	if err := s.exec(ctx, "TRUNCATE outbox_events"); err != nil {
		return err
	}
	if err := s.fill(ctx, delivered, o.delivered); err != nil {
		return err
	}
	rates = nil
	for range o.rounds {
		if err := s.fill(ctx, t, o.rows); err != nil {
			return err
		}
		rate, err := s.timeDrain(ctx, t, o.rows, relayLoop)
		if err != nil {
			return err
		}
		rates = append(rates, rate)
	}
	fmt.Printf("%-60s %12.0f %8.2f  (wanted: 0.80)\n",
		fmt.Sprintf("backlog of %d, %d delivered rows in the table", o.rows, o.delivered), median(rates), median(rates)/base)
	return s.exec(ctx, "TRUNCATE outbox_events")
}
