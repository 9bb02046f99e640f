package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// taking is a sink that takes everything at once, so that what is measured is the tables' work alone.
type taking struct{ count *atomic.Int64 }

func (t taking) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	t.count.Add(int64(len(batch)))
	return make([]outbox.Result, len(batch))
}

// spill is the first step of a relay that keeps a row per delivery. It is the least statement that could copy a batch
// of events to $2 sinks, without lanes, guard or routing. It sees $1 events.
const spill = `WITH taken AS MATERIALIZED (
		SELECT e.*, hashtextextended(coalesce(e.tenant_id, '') || E'\x1f' || coalesce(e.aggregate_type, '') || E'\x1f' || e.aggregate_id, 0) AS hash
		  FROM outbox_events e WHERE e.status IN ('NEW', 'FAILED') ORDER BY e.position LIMIT $1
	), copied AS (
		INSERT INTO outbox_deliveries (outbox_table, sink, lane, order_key, event_id, destinations, event_topic, event_key,
		       aggregate_type, tenant_id, source, payload, occurred_at, written_at)
		SELECT 'outbox_events', s, t.hash & 63, t.hash, t.id, jsonb_build_array(t.event_topic), t.event_topic, t.aggregate_id,
		       t.aggregate_type, t.tenant_id, t.source_bc, t.payload, t.occurred_at, t.created_at
		  FROM taken t CROSS JOIN unnest($2::text[]) s
		 ORDER BY t.position
	)
	UPDATE outbox_events e SET status = 'SENT', processed_at = now() FROM taken t
	 WHERE e.position = t.position AND e.status IN ('NEW', 'FAILED')`

// written is what the server has written since it began: rows of the events and their deliveries, and the log of it.
type written struct{ inserts, updates, wal float64 }

// written returns it of the events and their deliveries, once the sessions since began have ended.
func (s *servers) written(ctx context.Context, began time.Time) (w written, err error) {
	if err := s.sessionsEnded(ctx, began); err != nil {
		return w, err
	}
	return s.counted(ctx, "relname IN ('outbox_events', 'outbox_deliveries')")
}

// sessionsEnded waits for the ends of the sessions since began, which count rows when they end, if not before.
func (s *servers) sessionsEnded(ctx context.Context, began time.Time) error {
	s.app.Reset()
	for sessions := 1; sessions > 0; time.Sleep(20 * time.Millisecond) {
		if err := s.app.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND backend_start > $1`,
			began).Scan(&sessions); err != nil {
			return err
		}
	}
	return nil
}

// counted returns what the server has counted so far of the tables that the condition is true for.
func (s *servers) counted(ctx context.Context, tables string) (w written, err error) {
	err = s.app.QueryRow(ctx, `SELECT sum(n_tup_ins), sum(n_tup_upd + n_tup_del), pg_current_wal_lsn() - '0/0'
		  FROM pg_stat_user_tables WHERE `+tables).Scan(&w.inserts, &w.updates, &w.wal)
	return w, err
}

// fanout compares two ways of giving an event to several sinks that all take it. One is a row for what a sink has not
// taken (the product), the other a row for each delivery.
func fanout(ctx context.Context, s *servers, o options) error {
	t := outboxTables[0]
	ways := []struct {
		name  string
		sinks int
		run   func(context.Context, *servers, []string, int) error
	}{
		{"1 sink, no routes", 1, withoutRoutes},
		{"2 sinks, a row for what is not taken", 2, withRoutes}, {"2 sinks, a row per delivery", 2, rowPerDelivery},
		{"5 sinks, a row for what is not taken", 5, withRoutes}, {"5 sinks, a row per delivery", 5, rowPerDelivery},
	}
	rates, wal, processor := make([][]float64, len(ways)), make([][]float64, len(ways)), make([][]float64, len(ways))
	rows := make([]written, len(ways))
	s.app.Reset()
	var began time.Time
	if err := s.app.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&began); err != nil {
		return err
	}
	for range o.rounds {
		for i, w := range ways { // interleaved, so that the machine's drift meets all of them
			if err := s.exec(ctx, "TRUNCATE outbox_deliveries"); err != nil {
				return err
			}
			if err := s.refill(ctx, t, o.rows); err != nil {
				return err
			}
			before, err := s.written(ctx, began)
			if err != nil {
				return err
			}
			spent, start := s.cpu(), time.Now()
			if err := w.run(ctx, s, sinkNames[:w.sinks], o.rows); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			rates[i] = append(rates[i], float64(o.rows)/time.Since(start).Seconds())
			now := s.cpu()
			processor[i] = append(processor[i],
				(now.postgres+now.self-spent.postgres-spent.self)*100_000/float64(o.rows))
			after, err := s.written(ctx, began)
			if err != nil {
				return err
			}
			n := float64(o.rows)
			wal[i] = append(wal[i], (after.wal-before.wal)/n)
			rows[i] = written{inserts: (after.inserts - before.inserts) / n, updates: (after.updates - before.updates) / n}
		}
	}
	fmt.Printf("%-38s %10s %6s %9s %9s %10s %6s %16s %6s\n", "outbox_events, sinks that discard", "events/s", "ratio",
		"inserts", "updates", "WAL bytes", "ratio", "CPU s per 100k", "ratio")
	base := 0
	for i, w := range ways {
		if w.sinks != ways[base].sinks {
			base = i
		}
		fmt.Printf("%-38s %10.0f %6.2f %9.2f %9.2f %10.0f %6.2f %16.2f %6.2f\n", w.name,
			median(rates[i]), median(rates[i])/median(rates[base]), rows[i].inserts, rows[i].updates,
			median(wal[i]), median(wal[i])/median(wal[base]), median(processor[i]),
			median(processor[i])/median(processor[base]))
	}
	return s.exec(ctx, "TRUNCATE outbox_events, outbox_deliveries")
}

var sinkNames = []string{"a", "b", "c", "d", "e"}

func withoutRoutes(ctx context.Context, s *servers, sinks []string, rows int) error {
	return s.deliverTo(ctx, sinks, rows, []relay.Table{{Layout: outbox.OutboxEvents(), Sink: sinks[0]}}, nil)
}

func withRoutes(ctx context.Context, s *servers, sinks []string, rows int) error {
	var all relay.Route
	for _, name := range sinks {
		all.To = append(all.To, relay.Target{Sink: name})
	}
	return s.deliverTo(ctx, sinks, rows,
		[]relay.Table{{Layout: outbox.OutboxEvents(), Routes: []relay.Route{all}}}, nil)
}

// rowPerDelivery serves each sink's rows with a relay of its own, as the product serves what a sink owes.
func rowPerDelivery(ctx context.Context, s *servers, sinks []string, rows int) error {
	var queues []relay.Table
	for _, name := range sinks {
		queues = append(queues, relay.Table{Layout: outbox.DeliveriesOf("outbox_events", name), Sink: name})
	}
	return s.deliverTo(ctx, sinks, rows, queues, func(ctx context.Context, wake func()) error {
		conn, err := s.likeRelay(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		for {
			done, err := conn.Exec(ctx, spill, batch, sinks)
			if err != nil || done.RowsAffected() == 0 {
				return err
			}
			wake()
		}
	})
}

// deliverTo runs a relay for each of some tables until each sink has all rows and all of them are settled. first, if
// any, runs beside them. The relays have sessions of their own, which report what they have written when they end.
func (s *servers) deliverTo(
	ctx context.Context, sinks []string, rows int, tables []relay.Table, first func(context.Context, func()) error,
) error {
	db, err := postgres.Connect(ctx, s.url, postgres.Config{Conns: 2*len(sinks) + 8})
	if err != nil {
		return err
	}
	defer db.Close()
	var taken atomic.Int64
	cfg := relay.Config{Sinks: map[string]outbox.Sink{}, Logger: quiet}
	cfg.Retention.After, cfg.LetterRetention.After = -1, -1
	for _, name := range sinks {
		cfg.Sinks[name] = taking{&taken}
	}
	group, all := errgroup.WithContext(ctx)
	all, stop := context.WithCancel(all)
	defer stop()
	var relays []*relay.Relay
	for _, t := range tables {
		cfg.Tables = []relay.Table{t}
		relay, err := relay.New(db, nil, cfg)
		if err != nil {
			return err
		}
		relays = append(relays, relay)
		group.Go(func() error { return relay.Run(all) })
	}
	if first != nil {
		group.Go(func() error {
			return first(all, func() {
				for _, r := range relays {
					r.Wake("")
				}
			})
		})
	}
	for want := int64(rows * len(sinks)); taken.Load() < want && all.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	stop() // they settle what they have published
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		return err
	}
	var left, owed int
	err = s.app.QueryRow(ctx, `SELECT (SELECT count(*) FROM outbox_events WHERE status <> 'SENT'),
		(SELECT count(*) FROM outbox_deliveries WHERE status <> 'delivered')`).Scan(&left, &owed)
	if err == nil && left+owed > 0 {
		err = fmt.Errorf("%d events and %d deliveries were not settled", left, owed)
	}
	return err
}
