package main

import (
	"context"
	"fmt"
)

// flat shows that neither a large backlog nor many delivered rows slow the relay down.
func flat(ctx context.Context, s *servers, o options) error {
	t := outboxTables[0]
	fmt.Printf("%-60s %12s %8s\n", "outbox_events, relay", "events/s", "ratio")
	var rates, large, bare []float64
	var spent string
	for range o.rounds { // in turns: the machine drifts over a run of minutes
		for _, one := range []struct {
			rows  int
			serve loop
			rates *[]float64
		}{{o.rows, relayLoop, &rates}, {o.backlog, relayLoop, &large}, {o.backlog, bareLoop, &bare}} {
			if err := s.refill(ctx, t, one.rows); err != nil {
				return err
			}
			before := s.cpu()
			rate, err := s.timeDrain(ctx, t, one.rows, one.serve)
			if err != nil {
				return err
			}
			if one.rates == &large {
				spent = s.cpu().per(before, one.rows)
			}
			*one.rates = append(*one.rates, rate)
		}
	}
	base := median(rates)
	fmt.Printf("%-60s %12.0f %8.2f\n", fmt.Sprintf("backlog of %d, empty table", o.rows), base, 1.0)
	fmt.Printf("%-60s %12.0f %8.2f   %s  (wanted: 0.90)\n", fmt.Sprintf("backlog of %d, empty table", o.backlog),
		median(large), median(large)/base, spent)
	fmt.Printf("%-60s %12.0f %8.2f\n", "the same, bare loop with the least SQL", median(bare), median(bare)/base)

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
	fmt.Printf("%-60s %12.0f %8.2f  (wanted: 0.90)\n",
		fmt.Sprintf("backlog of %d, %d delivered rows in the table", o.rows, o.delivered), median(rates), median(rates)/base)
	return s.exec(ctx, "TRUNCATE outbox_events")
}
