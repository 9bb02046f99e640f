package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/store/postgres"
)

// scale compares one relay with two that share the lanes, each with its own sessions and its own connections to Redis,
// as two processes have. One relay has two workers by default and so does already what two relays with one each do; the
// second pair shows what is left.
func scale(ctx context.Context, s *servers, o options) error {
	t := outboxTables[0]
	fmt.Printf("%-52s %12s %8s\n", "outbox_events", "events/s", "ratio")
	cases := []struct {
		name            string
		relays, workers int
	}{{"one relay, 1 worker", 1, 1}, {"two relays, 1 worker each", 2, 1}, {"one relay, 2 workers (default)", 1, 2},
		{"two relays, 2 workers each", 2, 2}}
	rates := make([][]float64, len(cases))
	for range o.rounds {
		for i, c := range cases {
			if err := s.refill(ctx, t, 3*o.rows); err != nil { // so that joining, some 0.3 s, is a small part
				return err
			}
			rate, err := s.timeDrain(ctx, t, 3*o.rows, relays(c.relays, c.workers))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	for i, c := range cases {
		want := ""
		if i == 1 {
			want = "  (wanted: 1.30)"
		}
		fmt.Printf("%-52s %12.0f %8.2f%s\n", c.name, median(rates[i]), median(rates[i])/median(rates[i/2*2]), want)
	}
	return nil
}

// relays is n relays at once, sharing nothing but the servers.
func relays(n, workers int) loop {
	return func(ctx context.Context, s *servers, t table, all context.Context) error {
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			wg.Go(func() { errs[i] = separateRelay(ctx, s, t, relay.Config{Workers: workers}, all) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
}

func separateRelay(ctx context.Context, s *servers, t table, cfg relay.Config, all context.Context) error {
	db, err := postgres.Connect(ctx, s.url, postgres.Config{Conns: cfg.Workers + 3})
	if err != nil {
		return err
	}
	defer db.Close()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: s.redis.Socket(), MaxRetries: -1})
	defer func() { _ = client.Close() }()
	sink, err := redispubsub.New(client, redispubsub.Config{})
	if err != nil {
		return err
	}
	own := *s
	own.relay, own.sink = db, sink
	relay, err := own.newRelay(t, cfg)
	if err != nil {
		return err
	}
	return errors.Join(relay.Run(all), sink.Close())
}

// failing measures what keys that cannot be delivered cost the others: a tenth of the keys goes to a channel that Redis
// refuses to the relay's user.
func failing(ctx context.Context, s *servers, o options) error {
	refused := outboxTables[0]
	refused.fill = `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
		SELECT CASE WHEN i % 10 = 0 THEN 'forbidden' ELSE 'order.placed' END, now(), 'Order', (i % 1000)::text, 'shop', jsonb_build_object('n', i, 'pad', repeat('x', 475))
		  FROM generate_series(1, $1::int) i`
	healthy := refused
	healthy.fill = `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
		SELECT 'order.placed', now(), 'Order', (i % 1000)::text, 'shop', jsonb_build_object('n', i, 'pad', repeat('x', 475))
		  FROM generate_series(1, $1::int * 10 / 9) i WHERE i % 10 <> 0`
	if err := s.client.Do(ctx, "ACL", "SETUSER", "bench", "reset", "on", "nopass", "~*", "+@all", "resetchannels",
		"&order.*").Err(); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: s.redis.Socket(), Username: "bench", Password: "any",
		MaxRetries: -1})
	defer func() { _ = client.Close() }()
	sink, err := redispubsub.New(client, redispubsub.Config{})
	if err != nil {
		return err
	}
	own := *s
	own.sink = sink
	var with, without []float64
	for range o.rounds {
		for _, c := range []struct {
			t    table
			rows int
			into *[]float64
		}{{healthy, o.rows * 9 / 10, &without}, {refused, o.rows, &with}} {
			if err := own.refill(ctx, c.t, c.rows); err != nil {
				return err
			}
			rate, err := own.timeDrain(ctx, c.t, o.rows*9/10, relayLoop)
			if err != nil {
				return err
			}
			*c.into = append(*c.into, rate)
		}
	}
	fmt.Printf("%-52s %12s %8s\n", "events of the other keys", "events/s", "ratio")
	fmt.Printf("%-52s %12.0f %8.2f\n", fmt.Sprintf("%d events, nothing else", o.rows*9/10), median(without), 1.0)
	fmt.Printf("%-52s %12.0f %8.2f  (wanted: 0.85)\n", "the same, between them those of a tenth of the keys fail",
		median(with), median(with)/median(without))
	return errors.Join(blocked(ctx, &own, o), sink.Close())
}

// blocked is the same with keys whose first event failed before and waits for its retry, more and more events behind
// each.
func blocked(ctx context.Context, s *servers, o options) error {
	const keys = 10_000
	t := outboxTables[0]
	base := 0.0
	fmt.Printf("%-52s %12s %8s\n", fmt.Sprintf("%d events behind what %d blocked keys have waiting", o.rows, keys),
		"events/s", "ratio")
	for _, each := range []int{0, 1, 2, 11} {
		var rates []float64
		for range o.rounds {
			if err := s.exec(ctx, "TRUNCATE outbox_events"); err != nil {
				return err
			}
			if _, err := s.app.Exec(ctx, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, status, retry_count, next_retry_at)
				SELECT 'forbidden', now(), 'Blocked', (i % $2::int)::text, 'shop', jsonb_build_object('n', i, 'pad', repeat('x', 475)),
				       CASE WHEN i <= $2 THEN 'FAILED' ELSE 'NEW' END, CASE WHEN i <= $2 THEN 1 ELSE 0 END, CASE WHEN i <= $2 THEN now() + interval '1 hour' END
				  FROM generate_series(1, $1::int) i`, keys*each, keys); err != nil {
				return err
			}
			if err := s.fill(ctx, t, o.rows); err != nil {
				return err
			}
			rate, err := s.timeDrain(ctx, t, o.rows, relayLoop)
			if err != nil {
				return err
			}
			rates = append(rates, rate)
		}
		if each == 0 {
			base = median(rates)
		}
		what := "none blocked"
		if each > 0 {
			what = fmt.Sprintf("%d blocked keys, %d events behind them", keys, keys*(each-1))
		}
		fmt.Printf("%-52s %12.0f %8.2f\n", what, median(rates), median(rates)/base)
	}
	return s.exec(ctx, "TRUNCATE outbox_events")
}
