package main

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/redispubsub"
)

const batch = 1000

// table is an outbox table as this bench fills and drains it.
type table struct {
	layout      outbox.Layout
	destination string
	fill        string // $1 rows, payloads of about 500 bytes over 1000 keys
	// The least statements that could drain it: no lanes, no guard, no blocked keys.
	claim, mark, remove string
	pending             string // selects what is not delivered
}

var outboxTables = []table{
	{
		layout: outbox.OutboxEvents(), destination: "{topic}",
		fill: `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
			SELECT 'order.placed', now(), 'Order', (i % 1000)::text, 'shop', jsonb_build_object('n', i, 'pad', repeat('x', 475)) FROM generate_series(1, $1::int) i`,
		claim:   `SELECT id, position, event_topic, payload::text FROM outbox_events WHERE status IN ('NEW', 'FAILED') ORDER BY position LIMIT $1`,
		mark:    `UPDATE outbox_events SET status = 'SENT', processed_at = now() WHERE position = ANY ($1) AND status IN ('NEW', 'FAILED')`,
		remove:  `DELETE FROM outbox_events WHERE position = ANY ($1) AND status IN ('NEW', 'FAILED')`,
		pending: `SELECT FROM outbox_events WHERE status IN ('NEW', 'FAILED')`,
	},
	{
		layout: outbox.CrawlOutbox(), destination: "run:{key}",
		fill: `WITH runs AS (INSERT INTO crawl_runs (app_package) SELECT 'com.example' FROM generate_series(1, 1000) RETURNING id), n AS (SELECT id, row_number() OVER () - 1 AS n FROM runs)
			INSERT INTO crawl_outbox (crawl_id, event_type, payload)
			SELECT n.id, 'ACTION_EXECUTED', jsonb_build_object('n', i, 'pad', repeat('x', 475)) FROM generate_series(1, $1::int) i JOIN n ON n.n = i % 1000 ORDER BY i`,
		claim:   `SELECT event_id, id, 'run:' || crawl_id, payload::text FROM crawl_outbox WHERE published_at IS NULL ORDER BY id LIMIT $1`,
		mark:    `UPDATE crawl_outbox SET published_at = now() WHERE id = ANY ($1) AND published_at IS NULL`,
		remove:  `DELETE FROM crawl_outbox WHERE id = ANY ($1) AND published_at IS NULL`,
		pending: `SELECT FROM crawl_outbox WHERE published_at IS NULL`,
	},
}

// deliveredRows fills outbox_events with rows that no relay looks at.
var deliveredRows = strings.NewReplacer("payload)", "payload, status, processed_at)",
	"FROM generate_series", ", 'SENT', now() FROM generate_series").Replace(outboxTables[0].fill)

// outboxLog is the log. Rows are pending that some lane's furthest position has not passed.
var outboxLog = table{
	layout: outbox.OutboxLog(), destination: "{topic}",
	fill: strings.Replace(outboxTables[0].fill, "outbox_events", "outbox_log", 1),
	pending: `SELECT FROM outbox_log WHERE position > (SELECT min(coalesce(
		(SELECT max(p.position) FROM outbox_log_positions p WHERE p.lanes & (1::bigint << lane) <> 0), 0)) FROM generate_series(0, 63) lane)`,
}

// inMode is a table in a settle mode.
func (t table) inMode(mode outbox.SettleMode) table {
	t.layout.Settle = mode
	return t
}

// loop drains a table and returns when it is empty, or, if it has no such end, when all is done.
type loop func(ctx context.Context, s *servers, t table, all context.Context) error

// relaySettings are the settings of a relay's sessions that matter to the statements of bare loops.
const relaySettings = `SET synchronous_commit = off; SET enable_seqscan = off; SET enable_bitmapscan = off;
	SET enable_sort = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off;
	SET plan_cache_mode = force_generic_plan`

// likeRelay connects with them, for a loop that is no relay.
func (s *servers) likeRelay(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, s.app.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, relaySettings); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// bareRow is what a bare loop reads of an event.
type bareRow struct {
	ID               uuid.UUID
	Position         int64
	Channel, Payload string
}

// bareLoop is the limit: what any relay that updates, or deletes, a row per event could reach here.
func bareLoop(ctx context.Context, s *servers, t table, _ context.Context) error {
	return s.bareLoop(ctx, t, func(rows []bareRow) error {
		pipe := s.client.Pipeline()
		for _, r := range rows {
			pipe.Publish(ctx, r.Channel, r.Payload)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

// refusingLoop is the limit of those that have Redis refuse copies.
func refusingLoop(ctx context.Context, s *servers, t table, _ context.Context) error {
	refusing, err := redispubsub.New(s.client, redispubsub.Config{Envelope: outbox.PayloadOnly})
	if err != nil {
		return err
	}
	return s.bareLoop(ctx, t, func(rows []bareRow) error {
		deliveries := make([]outbox.Delivery, len(rows))
		records := make([]outbox.Record, len(rows))
		for i, r := range rows {
			records[i] = outbox.Record{
				Event: outbox.Event{ID: r.ID, Payload: []byte(r.Payload)}, Lane: int16(r.Position % outbox.LaneCount),
			}
			deliveries[i] = outbox.Delivery{Record: &records[i], Destination: r.Channel}
		}
		for _, result := range refusing.Publish(ctx, deliveries) {
			if result.Err != nil {
				return result.Err
			}
		}
		return nil
	})
}

func (s *servers) bareLoop(ctx context.Context, t table, publish func([]bareRow) error) error {
	settle := t.mark
	if t.layout.Settle == outbox.SettleDelete {
		settle = t.remove
	}
	conn, err := s.likeRelay(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for {
		rows, err := conn.Query(ctx, t.claim, batch)
		if err != nil {
			return err
		}
		var events []bareRow
		var positions []int64
		var one bareRow
		if _, err := pgx.ForEachRow(rows, []any{&one.ID, &one.Position, &one.Channel, &one.Payload}, func() error {
			events, positions = append(events, one), append(positions, one.Position)
			return nil
		}); err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
		if err := publish(events); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, settle, positions); err != nil {
			return err
		}
	}
}

// sameStatementsLoop is the relay's own statements and script without the relay: no lease renewal,
// no order, no outcomes.
func sameStatementsLoop(ctx context.Context, s *servers, t table, _ context.Context) error {
	store, err := s.relay.OpenTable(ctx, t.layout)
	if err != nil {
		return err
	}
	template, err := outbox.ParseTemplate(t.destination)
	if err != nil {
		return err
	}
	owner := uuid.New()
	leased, err := store.Lease(ctx, outbox.LeaseRequest{Owner: owner, Name: "bench", TTL: time.Hour})
	if err != nil {
		return err
	}
	lanes := leased.Lanes
	defer func() { _ = store.Leave(context.WithoutCancel(ctx), owner) }()
	for {
		records, err := store.Claim(ctx, lanes, outbox.ClaimLimit{Records: batch, Bytes: 8 << 20})
		if err != nil || len(records) == 0 {
			return err
		}
		deliveries := make([]outbox.Delivery, len(records))
		outcomes := make([]outbox.Outcome, len(records))
		for i, r := range records {
			destination, err := template.Expand(r)
			if err != nil {
				return err
			}
			deliveries[i] = outbox.Delivery{Record: r, Destination: destination}
			outcomes[i] = outbox.Outcome{Record: r}
		}
		for _, result := range s.sink.Publish(ctx, deliveries) {
			if result.Err != nil {
				return result.Err
			}
		}
		if _, err := store.Settle(ctx, owner, lanes, outcomes); err != nil {
			return err
		}
	}
}

// relayLoop is the product, as `outbox relay` runs it.
func relayLoop(_ context.Context, s *servers, t table, all context.Context) error {
	relay, err := s.newRelay(t, s.sink)
	if err != nil {
		return err
	}
	return relay.Run(all)
}

func (s *servers) newRelay(t table, into outbox.Sink) (*relay.Relay, error) {
	destination, err := outbox.ParseTemplate(t.destination)
	if err != nil {
		return nil, err
	}
	cfg := relay.Config{Tables: []relay.Table{{Layout: t.layout, Destination: destination}}, Logger: quiet}
	cfg.Retention.After, cfg.LetterRetention.After = -1, -1
	return relay.New(s.relay, into, cfg)
}
