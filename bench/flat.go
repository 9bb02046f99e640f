package main

import (
	"context"
	"fmt"
)

// flat shows that neither a large backlog nor many delivered rows slow the relay down.
func flat(ctx context.Context, s *servers, o options) error {
	t := outboxTables[0]
	lines := []struct {
		name   string
		rows   int
		serve  loop
		wanted string
		rates  []float64
		spent  string // in the last round
	}{
		{name: fmt.Sprintf("backlog of %d, empty table", o.rows), rows: o.rows, serve: relayLoop},
		{name: fmt.Sprintf("backlog of %d, empty table", o.backlog), rows: o.backlog, serve: relayLoop,
			wanted: "  (wanted: 0.90)"},
		{name: "the same, bare loop with the least SQL", rows: o.backlog, serve: bareLoop},
	}
	for range o.rounds { // in turns: the machine drifts over a run of minutes
		for i := range lines {
			l := &lines[i]
			if err := s.refill(ctx, t, l.rows); err != nil {
				return err
			}
			before := s.cpu()
			rate, err := s.timeDrain(ctx, t, l.rows, l.serve)
			if err != nil {
				return err
			}
			l.rates, l.spent = append(l.rates, rate), s.cpu().per(before, l.rows)
		}
	}
	base := median(lines[0].rates)
	fmt.Printf("%-60s %12s %8s\n", "outbox_events, relay", "events/s", "ratio")
	for _, l := range lines {
		fmt.Printf("%-60s %12.0f %8.2f   %s%s\n", l.name, median(l.rates), median(l.rates)/base, l.spent, l.wanted)
	}

	delivered := t
	delivered.fill = `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, status, processed_at)
		SELECT 'order.placed', now(), 'Order', (i % 1000)::text, 'shop', jsonb_build_object('n', i, 'pad', repeat('x', 475)), 'SENT', now() FROM generate_series(1, $1::int) i`
	if err := s.exec(ctx, "TRUNCATE outbox_events"); err != nil {
		return err
	}
	if err := s.fill(ctx, delivered, o.delivered); err != nil {
		return err
	}
	var rates []float64
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
