package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
)

// drainLimit is how long one drain may take before it counts as lost.
const drainLimit = 2 * time.Minute

// sinksLimit is how long sinks may take. Rounds that do not fit are left out, and the heading says how many there were.
const sinksLimit = 5 * time.Minute

// sinks compares the drain of a backlog through each sink with its two limits: what the sink's client publishes from
// memory, and what the relay drains into nothing. Each round measures everything once, so that the machine's drift
// meets all of it, and ratios are those of one round.
func sinks(ctx context.Context, s *servers, o options) error {
	targets, stop, err := openTargets(ctx, s)
	defer stop()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := slowEndpoint(ctx, s, o); err != nil {
		return fmt.Errorf("slow endpoint: %w", err)
	}
	if err := oneStopped(ctx, s, targets); err != nil {
		return fmt.Errorf("one of five stopped: %w", err)
	}
	comparisons := []*comparison{newComparison(1000, targets), newComparison(50, targets)}
	rounds, took := 0, time.Duration(0)
	for ; rounds < o.rounds && (rounds == 0 || time.Since(start)+took < sinksLimit); rounds++ {
		began := time.Now()
		for _, c := range comparisons {
			if err := c.round(ctx, s, o.rows); err != nil {
				return fmt.Errorf("%d keys: %w", c.keys, err)
			}
		}
		took = time.Since(began)
	}
	for _, c := range comparisons {
		c.print(o.rows, rounds)
	}
	return s.exec(ctx, "TRUNCATE outbox_events, outbox_deliveries")
}

// target is a sink, its own client, and where both publish to.
type target struct {
	name  string
	id    string // among the five of oneStopped; "" for none
	sink  outbox.Sink
	share int // of the backlog, one of so many: for those that take their time
	// clear empties the destination, arrived counts what is there.
	clear   func(context.Context) error
	arrived func(context.Context) (int, error)
	// publish uses the client alone: pipelined, each message acknowledged, no copy refused, no order looked after.
	publish func(context.Context, []message) error
}

// message is what is published of an event.
type message struct {
	id, key string
	body    []byte
	event   *outbox.Delivery
}

// comparison is the table of one number of keys.
type comparison struct {
	keys     int
	table    series // the relay into nothing
	measured []measured
}

// measured is a line of it: events a second, and the drain's share of what is possible.
type measured struct {
	target
	plain, alone, drain, ofPlain, ofTable, ofBoth series
}

func newComparison(keys int, targets []target) *comparison {
	c := &comparison{keys: keys}
	for _, to := range targets {
		c.measured = append(c.measured, measured{target: to})
	}
	return c
}

func (c *comparison) round(ctx context.Context, s *servers, rows int) error {
	t := outboxTables[0]
	t.fill = strings.Replace(t.fill, "i % 1000", fmt.Sprintf("i %% %d", c.keys), 1)
	if err := s.refill(ctx, t, rows); err != nil {
		return err
	}
	limit, err := s.drainInto(ctx, discard{}, place, rows)
	if err != nil {
		return fmt.Errorf("into nothing: %w", err)
	}
	c.table.add(limit)
	for i := range c.measured {
		m := &c.measured[i]
		if err := m.clear(ctx); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		messages, err := newMessages(rows/m.share, c.keys)
		if err != nil {
			return err
		}
		plain, err := m.rate(ctx, len(messages), func() error { return m.publish(ctx, messages) })
		if err != nil {
			return fmt.Errorf("%s: client: %w", m.name, err)
		}
		m.plain.add(plain)
		if len(m.alone) == 0 { // once is enough to see where the time goes
			alone, err := m.rate(ctx, len(messages), func() error { return publishAll(ctx, m.sink, messages) })
			if err != nil {
				return fmt.Errorf("%s: sink: %w", m.name, err)
			}
			m.alone.add(alone)
		}
		if err := s.refill(ctx, t, len(messages)); err != nil {
			return err
		}
		drain, err := s.drainInto(ctx, m.sink, place, len(messages))
		if err == nil {
			err = m.check(ctx, len(messages))
		}
		if err != nil {
			return fmt.Errorf("%s: relay: %w", m.name, err)
		}
		m.drain.add(drain)
		m.ofPlain.add(drain / plain)
		m.ofTable.add(drain / limit)
		m.ofBoth.add(drain / min(plain, limit))
	}
	return nil
}

func (c *comparison) print(rows, rounds int) {
	const row = "%-48s %8s %15s %10s %10s %8s %8s   %s\n"
	whole := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	ratio := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	fmt.Printf("\n"+row, fmt.Sprintf("%d keys, %d rounds", c.keys, rounds), "events/s", "", "client", "sink alone",
		": client", ": table", ": the smaller (wanted: 0.60)")
	fmt.Printf(row, fmt.Sprintf("relay, %d events into nothing", rows), whole(c.table.median()), c.table.spread("%.0f"),
		"", "", "", "1.00", "")
	for i := range c.measured {
		m := &c.measured[i]
		fmt.Printf(row, fmt.Sprintf("relay, %d to %s", rows/m.share, m.name), whole(m.drain.median()),
			m.drain.spread("%.0f"), whole(m.plain.median()), whole(m.alone.median()), ratio(m.ofPlain.median()),
			ratio(m.ofTable.median()), ratio(m.ofBoth.median())+" ("+m.ofBoth.spread("%.2f")+")")
	}
}

// rate returns how many events a second publish has brought to the destination, all of which must be there.
func (to target) rate(ctx context.Context, rows int, publish func() error) (float64, error) {
	start := time.Now()
	if err := publish(); err != nil {
		return 0, err
	}
	rate := float64(rows) / time.Since(start).Seconds()
	return rate, to.check(ctx, rows)
}

// check wants so many messages at the destination, and empties it.
func (to target) check(ctx context.Context, rows int) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		n, err := to.arrived(ctx)
		switch {
		case err != nil:
			return err
		case n == rows:
			return to.clear(ctx)
		case n > rows || time.Now().After(deadline):
			return fmt.Errorf("%d messages arrived of %d events", n, rows)
		}
		time.Sleep(5 * time.Millisecond) // a subscriber may still be reading
	}
}

// newMessages are messages like those of the rows of a backlog.
func newMessages(rows, keys int) ([]message, error) {
	all := make([]message, rows)
	pad := strings.Repeat("x", 475)
	for i := range all {
		id, err := outbox.NewID()
		if err != nil {
			return nil, err
		}
		key := i % keys
		d := &outbox.Delivery{Destination: place, Record: &outbox.Record{Position: int64(i + 1), Keyed: true,
			OrderKey: int64(key), Lane: int16(key % outbox.Lanes),
			Event: outbox.Event{ID: id, Topic: "order.placed", OccurredAt: time.Now(), AggregateType: "Order",
				AggregateID: fmt.Sprint(key), Source: "shop", TenantID: "default",
				Payload: fmt.Appendf(nil, `{"n": %d, "pad": "%s"}`, i+1, pad)}}}
		all[i] = message{id: id.String(), key: d.AggregateID, body: outbox.CloudEvent(nil, d), event: d}
	}
	return all, nil
}

// publishAll hands the messages to a sink in a relay's batches.
func publishAll(ctx context.Context, sink outbox.Sink, messages []message) error {
	for some := range slices.Chunk(messages, batch) {
		deliveries := make([]outbox.Delivery, len(some))
		for i, m := range some {
			deliveries[i] = *m.event
		}
		for _, result := range sink.Publish(ctx, deliveries) {
			if result.Err != nil {
				return result.Err
			}
		}
	}
	return nil
}

// drainInto runs a relay until the sink has taken so many events, and returns events a second.
func (s *servers) drainInto(ctx context.Context, sink outbox.Sink, destination string, rows int) (float64, error) {
	template, err := outbox.ParseTemplate(destination)
	if err != nil {
		return 0, err
	}
	counted := &counter{Sink: sink, done: make(chan struct{})}
	counted.left.Store(int64(rows))
	cfg := relay.Config{Logger: quiet,
		Tables: []relay.Table{{Layout: outboxTables[0].layout, Destination: template}}}
	cfg.Retention.After, cfg.LetterRetention.After = -1, -1
	relay, err := relay.New(s.relay, counted, cfg)
	if err != nil {
		return 0, err
	}
	all, arrived := context.WithCancel(ctx)
	defer arrived()
	start := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(all) }()
	select {
	case <-counted.done:
	case <-time.After(drainLimit):
		err = fmt.Errorf("%d of %d events were not taken in %s", counted.left.Load(), rows, drainLimit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	took := time.Since(start)
	arrived()
	if err := errors.Join(err, <-ended); err != nil {
		return 0, err
	}
	var open int
	if err := s.app.QueryRow(ctx, "SELECT count(*) FROM outbox_events WHERE status <> 'SENT'").Scan(&open); err != nil {
		return 0, err
	}
	if open > 0 {
		return 0, fmt.Errorf("%d rows are not marked as delivered", open)
	}
	return float64(rows) / took.Seconds(), nil
}

// counter counts down what a sink takes.
type counter struct {
	outbox.Sink
	left atomic.Int64
	done chan struct{} // closed at none
}

func (c *counter) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	results := c.Sink.Publish(ctx, batch)
	taken := int64(0)
	for _, r := range results {
		if r.Err == nil {
			taken++
		}
	}
	if left := c.left.Add(-taken); left <= 0 && left+taken > 0 {
		close(c.done)
	}
	return results
}

// discard is a sink that takes everything and keeps nothing.
type discard struct{}

func (discard) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	return make([]outbox.Result, len(batch))
}

// series are the figures of one thing, a round each.
type series []float64

func (s *series) add(v float64) { *s = append(*s, v) }

func (s series) median() float64 { return median(slices.Clone(s)) }

func (s series) spread(format string) string {
	return fmt.Sprintf(format+"–"+format, slices.Min(s), slices.Max(s))
}
