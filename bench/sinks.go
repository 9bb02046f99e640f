package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outboxrelay/outbox"
)

// sinksLimit is how long sinks may take. Rounds that do not fit are left out; the figures are those
// of the rest.
const sinksLimit = 5 * time.Minute

// intoNothing is the line of a relay whose sink keeps nothing: what the table allows.
const intoNothing = "into nothing"

// sinks compares the drain of a backlog through each sink with its two limits: what the sink's
// client publishes from memory, and what the relay drains into nothing. Ratios are those of one
// round.
func sinks(ctx context.Context, s *servers, o options, found *figures) error {
	targets, stop, err := openTargets(ctx, s)
	defer stop()
	if err != nil {
		return err
	}
	targets = append([]target{{name: intoNothing, sink: discard{}}}, targets...)
	var tasks []task
	for _, keys := range []int{1000, 50} {
		named := func(name string) string { return fmt.Sprintf("%s, %d keys", name, keys) }
		for _, to := range targets {
			tasks = append(tasks, task{named(to.name), named(intoNothing), ours, func(ctx context.Context, into *line) error {
				return s.drainInto(ctx, to, o.rows/max(to.share, 1), keys, into)
			}})
		}
	}
	start, took, wanted := time.Now(), time.Duration(0), o.rounds
	o.rounds, found.Rounds = 1, 0
	for ; found.Rounds < wanted && (found.Rounds == 0 || time.Since(start)+took < sinksLimit); found.Rounds++ {
		began := time.Now()
		if err := found.measure(ctx, o, tasks); err != nil {
			return err
		}
		took = time.Since(began)
	}
	return nil
}

// target is a sink, its own client, and where both publish to.
type target struct {
	name  string
	sink  outbox.Sink
	share int // of the backlog, one of so many: for those that take their time
	// clear empties the destination, arrived counts what is there.
	clear   func(context.Context) error
	arrived func(context.Context) (int, error)
	// publish uses the client alone: pipelined, each message acknowledged, no copy refused, no
	// order looked after.
	publish func(context.Context, []message) error
}

// message is what a client publishes of an event.
type message struct {
	id, key string
	body    []byte
	event   *outbox.Delivery
}

// drainInto measures the target's client, and then the relay with the target's sink.
func (s *servers) drainInto(ctx context.Context, to target, rows, keys int, into *line) error {
	if to.publish != nil {
		messages, err := newMessages(rows, keys)
		if err != nil {
			return err
		}
		if err := to.clear(ctx); err != nil {
			return err
		}
		start := time.Now()
		if err := to.publish(ctx, messages); err != nil {
			return fmt.Errorf("client: %w", err)
		}
		into.add("client", float64(rows)/time.Since(start).Seconds())
		if err := to.check(ctx, rows); err != nil {
			return fmt.Errorf("client: %w", err)
		}
	}
	t := outboxTables[0]
	t.destination = place
	t.fill = strings.Replace(t.fill, "i % 1000", fmt.Sprintf("i %% %d", keys), 1)
	if err := s.ready(ctx, relaying("", "", t, adr), rows); err != nil {
		return err
	}
	took, err := s.relayInto(ctx, t, to.sink, rows)
	if err != nil {
		return err
	}
	into.add("rate", float64(rows)/took.Seconds())
	if to.arrived == nil {
		return nil
	}
	return to.check(ctx, rows)
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
	for i := range all {
		id, err := outbox.NewID()
		if err != nil {
			return nil, err
		}
		key := i % keys
		d := &outbox.Delivery{Destination: place, Record: &outbox.Record{Position: int64(i + 1), Keyed: true,
			OrderKey: int64(key), Lane: int16(key % outbox.LaneCount),
			Event: outbox.Event{ID: id, Topic: "order.placed", OccurredAt: time.Now(), AggregateType: "Order",
				AggregateID: fmt.Sprint(key), Source: "shop", TenantID: "default",
				Payload: fmt.Appendf(nil, `{"n": %d, "pad": "%s"}`, i+1, padding)}}}
		all[i] = message{id: id.String(), key: d.AggregateID, body: outbox.CloudEvent(nil, d), event: d}
	}
	return all, nil
}

// relayInto runs a relay until the sink has taken so many events, and returns how long that took.
func (s *servers) relayInto(ctx context.Context, t table, sink outbox.Sink, rows int) (time.Duration, error) {
	counted := &counter{Sink: sink, done: make(chan struct{})}
	counted.left.Store(int64(rows))
	relay, err := s.newRelay(t, counted)
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
	return took, nil
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
