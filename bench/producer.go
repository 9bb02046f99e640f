package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

const businessInsert = "INSERT INTO orders (customer, total) VALUES ($1, $2)"

// producer measures a business transaction of one INSERT by 16 writers, without and with an event, and many events in
// one call.
func producer(ctx context.Context, s *servers, o options) error {
	if err := s.exec(ctx,
		"CREATE TABLE IF NOT EXISTS orders (id BIGSERIAL PRIMARY KEY, customer INT, total NUMERIC)"); err != nil {
		return err
	}
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	if err != nil {
		return err
	}
	strict, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop", Strict: true})
	if err != nil {
		return err
	}
	payload := map[string]string{"pad": string(make([]byte, 0)) + pad(475)}
	event := func(n int64) (outbox.Event, error) {
		e, err := outbox.NewEvent("order.placed", payload)
		e.AggregateType, e.AggregateID = "Order", fmt.Sprint(n)
		return e, err
	}
	business := func(tx pgx.Tx, n int64) error {
		_, err := tx.Exec(ctx, businessInsert, n%1000, 9.99)
		return err
	}
	inTx := func(w *postgres.Writer) func(int64) error {
		return func(n int64) error {
			return w.InTx(ctx, s.app, func(tx pgx.Tx) ([]outbox.Event, error) {
				e, err := event(n)
				if err != nil {
					return nil, err
				}
				return []outbox.Event{e}, business(tx, n)
			})
		}
	}
	variants := []struct {
		name string
		run  func(n int64) error
	}{
		{"business INSERT alone", func(n int64) error {
			return pgx.BeginFunc(ctx, s.app, func(tx pgx.Tx) error { return business(tx, n) })
		}},
		{"with one event, Queue (all in one round trip)", func(n int64) error {
			e, err := event(n)
			if err != nil {
				return err
			}
			var batch pgx.Batch
			batch.Queue(businessInsert, n%1000, 9.99)
			if err := writer.Queue(ctx, &batch, e); err != nil {
				return err
			}
			return s.app.SendBatch(ctx, &batch).Close()
		}},
		{"with one event, InTx (INSERT travels with COMMIT)", inTx(writer)},
		{"with one event, InTx, strict order", inTx(strict)},
		{"with one event, Write (its own round trip)", func(n int64) error {
			return pgx.BeginFunc(ctx, s.app, func(tx pgx.Tx) error {
				if err := business(tx, n); err != nil {
					return err
				}
				e, err := event(n)
				if err != nil {
					return err
				}
				return writer.Write(ctx, tx, e)
			})
		}},
	}
	const writers, length = 16, 4 * time.Second
	rates := make([][]float64, len(variants))
	spent := make([]string, len(variants))
	for range o.rounds {
		for i, v := range variants {
			if err := s.exec(ctx, "TRUNCATE outbox_events, orders", "CHECKPOINT"); err != nil {
				return err
			}
			before := s.cpu()
			rate, err := hammer(writers, length, v.run)
			spent[i] = s.cpu().perCall(before, rate*length.Seconds())
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	fmt.Printf("%-56s %12s %8s   %s\n", "16 writers", "tx/s", "ratio", "CPU µs a transaction: PostgreSQL / writers")
	base := median(rates[0])
	for i, v := range variants {
		note := ""
		if i == 1 {
			note = "  (wanted: 0.77, that is at most 30 % more time)"
		}
		fmt.Printf("%-56s %12.0f %8.2f   %s%s\n", v.name, median(rates[i]), median(rates[i])/base, spent[i], note)
	}
	return manyInOneCall(ctx, s, o, writer, event)
}

// hammer calls run from n goroutines and returns calls per second.
func hammer(n int, length time.Duration, run func(int64) error) (float64, error) {
	var calls atomic.Int64
	var wg sync.WaitGroup
	failed := make(chan error, n)
	start := time.Now()
	for range n {
		wg.Go(func() {
			for time.Since(start) < length {
				if err := run(calls.Add(1)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	select {
	case err := <-failed:
		return 0, err
	default:
		return float64(calls.Load()) / took.Seconds(), nil
	}
}

func manyInOneCall(
	ctx context.Context, s *servers, o options, w *postgres.Writer, event func(int64) (outbox.Event, error),
) error {
	const events, calls = 100, 200
	var per []float64
	for range o.rounds {
		var spent time.Duration
		for c := range calls {
			batch := make([]outbox.Event, events)
			for i := range batch {
				e, err := event(int64(c*events + i))
				if err != nil {
					return err
				}
				batch[i] = e
			}
			if err := pgx.BeginFunc(ctx, s.app, func(tx pgx.Tx) error {
				start := time.Now()
				defer func() { spent += time.Since(start) }()
				return w.Write(ctx, tx, batch...)
			}); err != nil {
				return err
			}
		}
		per = append(per, float64(spent.Microseconds())/(events*calls))
	}
	fmt.Printf("%-56s %9.1f µs each  (wanted: 15)\n", "100 events in one Write call", median(per))
	return s.exec(ctx, "TRUNCATE outbox_events, orders")
}

func pad(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}
