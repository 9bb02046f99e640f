package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/webhook"
)

// slowEndpoint drains a backlog of 64 keys to an endpoint that takes 50 ms for each request, and looks at the order.
func slowEndpoint(ctx context.Context, s *servers, o options) error {
	const keys, takes = 64, 50 * time.Millisecond
	t := outboxTables[0]
	t.fill = strings.Replace(t.fill, "i % 1000", fmt.Sprintf("i %% %d", keys), 1)
	var mu sync.Mutex
	var disorder string
	posted, last := 0, map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			Key  string `json:"partitionkey"`
			Data struct{ N int }
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &event)
		}
		mu.Lock()
		if from := last[event.Key]; err != nil || from > 0 && event.Data.N != from+keys {
			disorder = fmt.Sprintf("key %q: event %d came after %d (%v)", event.Key, event.Data.N, from, err)
		}
		last[event.Key] = event.Data.N
		posted++
		mu.Unlock()
		time.Sleep(takes)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	sink, err := webhook.New(webhook.List{{Name: place, URL: server.URL, Secrets: []webhook.Secret{webhookSecret}}},
		webhook.Config{AllowPrivate: true, AllowHTTP: true, Logger: quiet})
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close() }()
	rows := o.rows / 20
	var rates series
	for range o.rounds {
		posted, last = 0, map[string]int{}
		if err := s.refill(ctx, t, rows); err != nil {
			return err
		}
		rate, err := s.drainInto(ctx, sink, place, rows)
		if err != nil {
			return err
		}
		if posted != rows || disorder != "" {
			return fmt.Errorf("%d requests for %d events; order: %s", posted, rows, disorder)
		}
		rates.add(rate)
	}
	fmt.Printf("an endpoint that takes %s, %d keys, %d events: %.0f events/s (%s), "+
		"of %.0f that 64 requests at a time can be; order kept  (wanted: 1000)\n", takes, keys, rows, rates.median(), rates.spread("%.0f"),
		keys/takes.Seconds())
	return nil
}

// The stretches of oneStopped, and how many events are written a second.
const (
	settling   = 3 * time.Second
	stretch    = 30 * time.Second
	offered    = 500
	offerEvery = 20 * time.Millisecond
)

// oneStopped writes events that each go to five sinks, and stops the server of one of them on the way (SIGSTOP: it
// answers nothing). What the other four take, and how soon, is compared with the same run before that. In the end all
// five have all events.
func oneStopped(ctx context.Context, s *servers, targets []target) error {
	if err := s.exec(ctx, "TRUNCATE outbox_events, outbox_deliveries"); err != nil {
		return err
	}
	five := map[string]*timed{}
	var route relay.Route
	for _, to := range targets {
		if to.id == "" {
			continue
		}
		if err := to.clear(ctx); err != nil {
			return err
		}
		five[to.id] = &timed{Sink: to.sink}
		goal, err := relay.ParseTarget(to.id + ":" + place)
		if err != nil {
			return err
		}
		route.To = append(route.To, goal)
	}
	cfg := relay.Config{Logger: quiet, Sinks: map[string]outbox.Sink{},
		Tables: []relay.Table{{Layout: outboxTables[0].layout, Routes: []relay.Route{route}}}}
	for id, sink := range five {
		cfg.Sinks[id] = sink
	}
	cfg.Retention.After, cfg.LetterRetention.After = -1, -1
	relay, err := relay.New(s.relay, nil, cfg)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(running) }()
	defer func() { stop(); <-ended }()

	written := make(chan int, 1)
	failed := make(chan error, 1)
	start := time.Now()
	struck := start.Add(settling + stretch)
	go func() {
		n, err := offerUntil(ctx, s, struck.Add(stretch))
		failed <- err
		written <- n
	}()
	time.Sleep(time.Until(struck))
	if err := s.nats.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err = <-failed
	if err := errors.Join(err, s.nats.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	rows := <-written
	caughtUp := time.Now()
	for id, sink := range five {
		if err := sink.wait(ctx, rows); err != nil {
			return fmt.Errorf("%s: %w%s", id, err, owed(ctx, s))
		}
	}
	took := time.Since(caughtUp)
	var copies []string
	for _, to := range targets {
		if to.id == "" {
			continue
		}
		n, err := to.arrived(ctx)
		if err == nil && n < rows {
			err = fmt.Errorf("%d messages arrived of %d events", n, rows)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", to.id, err)
		}
		if n > rows {
			copies = append(copies, fmt.Sprintf("%s %d", to.id, n-rows))
		}
	}
	fmt.Printf("\n%-46s %12s %21s %14s\n", fmt.Sprintf("%d events/s, each to five sinks", offered), "taken/s",
		"p50 / p99 ms", "rate, p99 kept")
	for _, id := range slices.Sorted(maps.Keys(five)) {
		before := five[id].during(struck.Add(-stretch), struck)
		after := five[id].during(struck, struck.Add(stretch))
		kept := "stopped"
		if id != stopped {
			kept = fmt.Sprintf("%.2f, %.2f", float64(len(after))/float64(len(before)),
				percentile(before, 0.99).Seconds()/percentile(after, 0.99).Seconds())
		} else if len(after) > len(before)/10 {
			return fmt.Errorf("the stopped server took %d events", len(after))
		}
		fmt.Printf("%-46s %12s %21s\n", id+", all five up", perSecond(before), latencies(before))
		fmt.Printf("%-46s %12s %21s %14s  (wanted: 0.90)\n", id+", "+stopped+" stopped", perSecond(after),
			latencies(after), kept)
	}
	fmt.Printf("all %d events are at all five %s after %s went on; copies: %s\n", rows, took.Round(10*time.Millisecond),
		stopped, cmp.Or(strings.Join(copies, ", "), "none"))
	return nil
}

// stopped is the sink whose server is stopped.
const stopped = "nats"

// owed says what is left, for the error of a run that did not end.
func owed(ctx context.Context, s *servers) (text string) {
	rows, _ := s.app.Query(ctx, `SELECT format(E'\n  %s: %s %s, %s', sink, count(*), status, max(last_error))
		  FROM outbox_deliveries GROUP BY sink, status
		UNION ALL SELECT format(E'\n  outbox_events: %s %s', count(*), status) FROM outbox_events GROUP BY status`)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string]) // which has the query's error
	if err != nil {
		return "\n  " + err.Error()
	}
	return strings.Join(lines, "")
}

// offerUntil writes events on a schedule that does not wait for slow answers, and returns how many.
func offerUntil(ctx context.Context, s *servers, end time.Time) (n int, err error) {
	const some = int(offered * offerEvery / time.Second)
	for tick := time.Now(); tick.Before(end); tick = tick.Add(offerEvery) {
		time.Sleep(time.Until(tick))
		if _, err := s.app.Exec(ctx, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
			SELECT 'order.placed', now(), 'Order', (i % 200)::text, 'shop', jsonb_build_object('n', i, 'pad', repeat('x', 475))
			FROM generate_series($1::int, $2::int) i`, n+1, n+some); err != nil {
			return n, fmt.Errorf("write: %w", err)
		}
		n += some
	}
	return n, nil
}

// timed is a sink that notes when each event was taken, and how long that was after its transaction began.
type timed struct {
	outbox.Sink
	mu    sync.Mutex
	taken []taken
}

type taken struct {
	at   time.Time
	took time.Duration
}

func (t *timed) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	results := t.Sink.Publish(ctx, batch)
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, r := range results {
		if r.Err == nil {
			t.taken = append(t.taken, taken{now, now.Sub(batch[i].OccurredAt)})
		}
	}
	return results
}

// wait returns once the sink has taken n events.
func (t *timed) wait(ctx context.Context, n int) error {
	deadline := time.Now().Add(drainLimit)
	for {
		t.mu.Lock()
		got := len(t.taken)
		t.mu.Unlock()
		if got >= n || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("took %d of %d events within %s", got, n, drainLimit)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// during returns how long the events took that came between two moments, sorted.
func (t *timed) during(from, to time.Time) (some []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.taken {
		if !one.at.Before(from) && one.at.Before(to) {
			some = append(some, one.took)
		}
	}
	slices.Sort(some)
	return some
}

func perSecond(some []time.Duration) string {
	return fmt.Sprintf("%.0f", float64(len(some))/stretch.Seconds())
}

func latencies(some []time.Duration) string {
	if len(some) == 0 {
		return "-"
	}
	ms := func(p float64) float64 { return percentile(some, p).Seconds() * 1000 }
	return fmt.Sprintf("%.1f / %.1f", ms(0.5), ms(0.99))
}
