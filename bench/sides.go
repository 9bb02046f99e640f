package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/store/postgres"
)

// side is one way of getting committed events to Redis: ours, a peer, or a bare loop. It serves in
// a process of its own, whatever it is, so that its processor time can be told from that of the
// writers and the subscriber.
type side struct {
	name string
	kind kind
	base string // the bare loop that it is compared with
	// setup makes the side's tables, where outbox's migrations have not.
	setup func(context.Context, *servers) error
	// indexes are those of outbox_events; "" leaves them as they are.
	indexes pgmigrations.IndexSet
	tables  []string // emptied before a run, and after it
	fill    string   // $1 events of backlog: JSON of about 500 bytes that begins with their number n, over 1000 keys
	busy    string   // asks whether an event is there that is not settled
	share   int      // of the backlog, one of so many: for a side that would take minutes
	// delivered is how many rows are in outbox_events beside the backlog.
	delivered int
	// serve delivers until the last context ends.
	serve func(context.Context, *servers, context.Context) error
	// opens returns what writes an event in a transaction with a business row.
	opens opening
}

// kind is what a side is to the others.
type kind string

const (
	ours  kind = "ours"
	peer  kind = "peer"
	limit kind = "limit" // a loop that shows what is possible
)

// opening connects a writer. close gives its connections back.
type opening func(ctx context.Context, s *servers, wake ...func(string)) (write writing, close func(), err error)

// writing commits a transaction of a business INSERT and event n of a key.
type writing func(ctx context.Context, n, key int) error

const adr, lean = pgmigrations.ADRIndexes, pgmigrations.LeanIndexes

// sides are all that drain. Names are those of the results.
func sides() []side {
	events, crawl := outboxTables[0], outboxTables[1]
	deleted := events.inMode(outbox.SettleDelete)
	return []side{
		bare("bare loop, mark", events),
		likewise("bare loop, mark, copies refused", "bare loop, mark", events, lean, limit, refusingLoop),
		likewise("the relay's statements alone, mark", "bare loop, mark", events, lean, limit, sameStatementsLoop),
		relaying("outbox_events, mark", "bare loop, mark", events, lean),
		relaying("outbox_events, mark, ADR-004's indexes", "bare loop, mark", events, adr),
		bare("bare loop, mark, crawl_outbox", crawl),
		relaying("crawl_outbox, mark", "bare loop, mark, crawl_outbox", crawl, ""),
		bare("bare loop, delete", deleted),
		likewise("bare loop, delete, copies refused", "bare loop, delete", deleted, lean, limit, refusingLoop),
		likewise("the relay's statements alone, delete", "bare loop, delete", deleted, lean, limit, sameStatementsLoop),
		relaying("outbox_events, delete", "bare loop, delete", deleted, lean),
		relaying("outbox_events, archive", "", events.inMode(outbox.SettleArchive), lean),
		logged("outbox_log", "bare loop, delete"),
		oagudoReader, watermillQueue, watermillOffsets, riverTuned, naiveLoop,
	}
}

func sideCalled(name string) (side, error) {
	for _, one := range sides() {
		if one.name == name {
			return one, nil
		}
	}
	return side{}, fmt.Errorf("there is no side %q", name)
}

// relaying is the relay with its defaults.
func relaying(name, base string, t table, indexes pgmigrations.IndexSet) side {
	return likewise(name, base, t, indexes, ours, relayLoop)
}

// logged is the relay on a log.
func logged(name, base string) side {
	one := relaying(name, base, outboxLog, "")
	one.tables = append(one.tables, "outbox_log_positions")
	return one
}

// bare is the loop of the least statements that could drain the table.
func bare(name string, t table) side { return likewise(name, "", t, lean, limit, bareLoop) }

// likewise is any loop around one of outbox's tables.
func likewise(name, base string, t table, indexes pgmigrations.IndexSet, k kind, l loop) side {
	return side{
		name: name, kind: k, base: base, indexes: indexes, opens: writeInTx,
		tables: []string{t.layout.Table, "outbox_archive"}, fill: t.fill, busy: "SELECT EXISTS (" + t.pending + ")",
		serve: func(ctx context.Context, s *servers, until context.Context) error { return l(ctx, s, t, until) },
	}
}

// setup makes the business table and what sides have for tables.
func (s *servers) setup(ctx context.Context) error {
	if err := s.exec(ctx, "CREATE TABLE orders (id BIGSERIAL PRIMARY KEY, customer INT, total NUMERIC)"); err != nil {
		return err
	}
	for _, one := range sides() {
		if one.setup != nil {
			if err := one.setup(ctx, s); err != nil {
				return fmt.Errorf("set up %s: %w", one.name, err)
			}
		}
	}
	return nil
}

// empty clears what a side has left behind, at PostgreSQL and at Redis.
func (s *servers) empty(ctx context.Context, one side) error {
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	return s.exec(ctx, "TRUNCATE orders, "+strings.Join(one.tables, ", "))
}

// ready has the side's tables empty, with a backlog if rows is not 0, and what was written before
// out of the way.
func (s *servers) ready(ctx context.Context, one side, rows int) error {
	if err := s.empty(ctx, one); err != nil {
		return err
	}
	if one.indexes != "" {
		if _, err := pgmigrations.SwitchIndexes(ctx, s.url, one.indexes, func(string) {}); err != nil {
			return err
		}
	}
	if one.delivered > 0 {
		if _, err := s.app.Exec(ctx, deliveredRows, one.delivered); err != nil {
			return fmt.Errorf("fill with delivered rows: %w", err)
		}
	}
	if rows > 0 {
		if _, err := s.app.Exec(ctx, one.fill, rows); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return s.exec(ctx, "VACUUM ANALYZE "+strings.Join(one.tables, ", "), "CHECKPOINT")
}

// start has a process that is ready to serve the side.
func (s *servers) start(ctx context.Context, one side) (err error) {
	s.child, err = startChild(ctx, one.name, databaseVariable+"="+s.url, socketVariable+"="+s.redis.Socket())
	return err
}

// end stops it.
func (s *servers) end() error {
	if s.child == nil {
		return nil
	}
	err := s.child.stop()
	s.child = nil
	return err
}

const businessInsert = "INSERT INTO orders (customer, total) VALUES ($1, $2)"

func business(ctx context.Context, tx pgx.Tx, key int) error {
	_, err := tx.Exec(ctx, businessInsert, key, 9.99)
	return err
}

// numbered is the payload of event n, of the size that backlogs have.
type numbered struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

var padding = strings.Repeat("x", 475)

func body(n int) ([]byte, error) { return json.Marshal(numbered{n, padding}) }

// event leaves its id to the writer. One of outbox.NewEvent has an id of its own, and its INSERT
// asks whether it is there already (docs/adr/0004).
func event(n, key int) (outbox.Event, error) {
	payload, err := body(n)
	return outbox.Event{Topic: "order.placed", Payload: payload, AggregateType: "Order", AggregateID: fmt.Sprint(key)}, err
}

// writer opens one of ours by how it writes.
func writer(cfg outbox.WriterConfig, write func(
	ctx context.Context, w *postgres.Writer, pool *pgxpool.Pool, e outbox.Event, key int, wake []func(string),
) error) opening {
	return func(_ context.Context, s *servers, wake ...func(string)) (writing, func(), error) {
		cfg.Source = "shop"
		w, err := postgres.NewWriter(cfg)
		return func(ctx context.Context, n, key int) error {
			e, err := event(n, key)
			if err != nil {
				return err
			}
			return write(ctx, w, s.app, e, key, wake)
		}, func() {}, err
	}
}

func inTx(
	ctx context.Context, w *postgres.Writer, pool *pgxpool.Pool, e outbox.Event, key int, wake []func(string),
) error {
	return w.InTx(ctx, pool, func(tx pgx.Tx) ([]outbox.Event, error) {
		return []outbox.Event{e}, business(ctx, tx, key)
	}, wake...)
}

// The ways that ours has. Queue is one round trip, InTx three, Write four.
var (
	writeInTx       = writer(outbox.WriterConfig{}, inTx)
	writeInTxStrict = writer(outbox.WriterConfig{Strict: true}, inTx)
	writeQueued     = writer(outbox.WriterConfig{}, func(
		ctx context.Context, w *postgres.Writer, pool *pgxpool.Pool, e outbox.Event, key int, _ []func(string),
	) error {
		var batch pgx.Batch
		batch.Queue(businessInsert, key, 9.99)
		if err := w.Queue(ctx, &batch, e); err != nil {
			return err
		}
		return pool.SendBatch(ctx, &batch).Close()
	})
	writeAlone = writer(outbox.WriterConfig{}, alone)
	writeLog   = writer(outbox.WriterConfig{Table: outboxLog.layout.Table}, alone)
)

func alone(
	ctx context.Context, w *postgres.Writer, pool *pgxpool.Pool, e outbox.Event, key int, _ []func(string),
) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := business(ctx, tx, key); err != nil {
			return err
		}
		return w.Write(ctx, tx, e)
	})
}
