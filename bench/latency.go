package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

// latency offers 1000 events a second over 50 runs and measures from the moment the writer's commit returned until the
// subscriber has the message. FR-005 asks for 500 ms to the browser.
func latency(ctx context.Context, s *servers, o options) error {
	fmt.Printf("%-52s %9s %9s %9s %9s %6s %6s %8s\n", "1000 events/s over 50 runs, crawl_outbox", "p50 ms", "p99 ms",
		"max ms", "events", "twice", "order", "lag end")
	for _, c := range []struct {
		name           string
		inProcess, sql bool
	}{
		{"relay polls (2 to 200 ms)", false, false},
		{"woken by NOTIFY after commit (another process)", false, true},
		{"woken in process after commit", true, false},
	} {
		if err := offer(ctx, s, o, c.name, c.inProcess, c.sql); err != nil {
			return err
		}
	}
	return nil
}

func offer(ctx context.Context, s *servers, o options, name string, inProcess, notify bool) error {
	t := outboxTables[1]
	if err := s.exec(ctx, "TRUNCATE crawl_outbox", "VACUUM ANALYZE crawl_outbox", "CHECKPOINT"); err != nil {
		return err
	}
	var runs []uuid.UUID
	if err := s.app.QueryRow(ctx,
		"WITH r AS (INSERT INTO crawl_runs (app_package) SELECT 'com.example' FROM generate_series(1, 50) RETURNING id) "+
			"SELECT array_agg(id) FROM r").Scan(&runs); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()

	relay, err := s.newRelay(t, outbox.RelayConfig{})
	if err != nil {
		return err
	}
	var wake []func(table string)
	if inProcess {
		wake = append(wake, relay.Wake)
	}
	if notify {
		n, err := postgres.NewNotifier(s.app, 0)
		if err != nil {
			return err
		}
		wake = append(wake, n.Wake)
		background.Go(func() { _ = n.Run(ctx) })
	}
	background.Go(func() { _ = relay.Run(ctx) })

	var mu sync.Mutex
	committed := map[string]time.Time{}
	arrived := map[string]time.Time{}
	last := map[string]int{}
	twice, disorder := 0, 0
	handle := func(channel, payload string, at time.Time) {
		var m struct {
			Key  string `json:"partitionkey"`
			Data struct {
				N int `json:"n"`
			} `json:"data"`
		}
		if json.Unmarshal([]byte(payload), &m) != nil {
			return
		}
		id := fmt.Sprintf("%s/%d", m.Key, m.Data.N)
		mu.Lock()
		defer mu.Unlock()
		if _, ok := arrived[id]; ok {
			twice++
		}
		arrived[id] = at
		if m.Data.N != last[m.Key]+1 {
			disorder++
		}
		last[m.Key] = m.Data.N
	}
	s.subscriber.handle.Store(&handle)
	defer s.subscriber.handle.Store(nil)
	from := s.subscriber.count.Load()

	// Each run has a writer that commits 20 events a second, one a transaction, on a schedule that does not wait for
	// slow answers.
	total := o.seconds * 1000
	var writers sync.WaitGroup
	failed := make(chan error, len(runs))
	start := time.Now()
	for i, run := range runs {
		writers.Go(func() {
			offset := time.Duration(i) * time.Millisecond
			for n := 1; n <= total/len(runs); n++ {
				time.Sleep(time.Until(start.Add(offset + time.Duration(n)*50*time.Millisecond)))
				if _, err := s.app.Exec(ctx,
					"INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 'PROCESSING', jsonb_build_object('n', "+
						"$2::int, 'pad', repeat('x', 475)))", run, n); err != nil {
					failed <- err
					return
				}
				at := time.Now()
				for _, w := range wake {
					w(t.layout.Table)
				}
				mu.Lock()
				committed[fmt.Sprintf("%s/%d", run, n)] = at
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	select {
	case err := <-failed:
		return fmt.Errorf("write: %w", err)
	default:
	}
	lagging := int64(total) - (s.subscriber.count.Load() - from)
	if err := s.subscriber.wait(ctx, from, total); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond) // a duplicate would come now
	mu.Lock()
	defer mu.Unlock()
	var took []time.Duration
	for id, at := range committed {
		got, ok := arrived[id]
		if !ok {
			return errors.New("an event did not arrive")
		}
		took = append(took, max(got.Sub(at), 0))
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	fmt.Printf("%-52s %9.2f %9.2f %9.2f %9d %6d %6d %8d\n", name, ms(percentile(took, 0.5)), ms(percentile(took, 0.99)),
		ms(took[len(took)-1]), len(took), twice, disorder, lagging)
	return nil
}
