package main

import (
	"context"
	"fmt"

	"github.com/outboxrelay/outbox/relay"
)

// batches shows why a batch is 1000 events: FR-005 has 100, ADR-004's defaults have 200.
func batches(ctx context.Context, s *servers, o options) error {
	t := outboxTables[0]
	sizes := []int{100, 200, 500, 1000, 2000}
	rates := make([][]float64, len(sizes))
	for range o.rounds {
		for i, size := range sizes {
			if err := s.refill(ctx, t, o.rows); err != nil {
				return err
			}
			rate, err := s.timeDrain(ctx, t, o.rows, relayWith(relay.Config{BatchRecords: size}))
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], rate)
		}
	}
	fmt.Printf("%-28s %12s %8s\n", "outbox_events, relay", "events/s", "ratio")
	base := median(rates[3])
	for i, size := range sizes {
		fmt.Printf("%-28s %12.0f %8.2f\n", fmt.Sprintf("batches of %d", size), median(rates[i]), median(rates[i])/base)
	}
	return nil
}
