package postgres_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// counting is a database that counts what is asked of its tables.
type counting struct {
	*postgres.DB
	looks, claims, leases atomic.Int64
}

func (c *counting) OpenTable(ctx context.Context, layout outbox.Layout) (outbox.Store, error) {
	s, err := c.DB.OpenTable(ctx, layout)
	if err != nil {
		return nil, err
	}
	return &countedTable{Store: s, of: c}, nil
}

func (c *counting) Watch(
	stores []outbox.Store,
) (func(context.Context, []bool) ([]outbox.Watched, error), error) {
	own := make([]outbox.Store, len(stores))
	for i, s := range stores {
		own[i] = s.(*countedTable).Store
	}
	look, err := c.DB.Watch(own)
	return func(ctx context.Context, busy []bool) ([]outbox.Watched, error) {
		c.looks.Add(1)
		return look(ctx, busy)
	}, err
}

type countedTable struct {
	outbox.Store
	of *counting
}

func (s *countedTable) Claim(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) ([]*outbox.Record, error) {
	s.of.claims.Add(1)
	return s.Store.Claim(ctx, lanes, limit)
}

func (s *countedTable) Lease(ctx context.Context, r outbox.LeaseRequest) (outbox.Leased, error) {
	s.of.leases.Add(1)
	return s.Store.Lease(ctx, r)
}

// A table that is busy has undelivered rows, whatever it has. What is known of its leases is the
// same.
func TestWatchTakesTheCallersWordForABusyTable(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := newPool(t, newDatabase(t, "core", "events", "log"))
	db := postgres.NewDB(pool)
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.OutboxLog()} {
		store, err := db.OpenTable(t.Context(), layout)
		ok(t, err)
		look, err := db.Watch([]outbox.Store{store, store})
		ok(t, err)
		seen, err := look(t.Context(), []bool{false, true})
		ok(t, err)
		if seen[0].Undelivered || !seen[1].Undelivered || seen[0].Leases != seen[1].Leases {
			t.Errorf("%s, empty: idle %+v, busy %+v", layout.Table, seen[0], seen[1])
		}
	}
}

// A relay with nothing to do asks one question for all its tables, and notices by it whatever
// happens: an event that nobody told of, a pause, a relay that joins and one that leaves.
func TestIdleRelayAsksOneQuestion(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := newPool(t, newDatabase(t, "core", "events", "crawl"))
	db := &counting{DB: postgres.NewDB(pool)}
	arrived := make(chan string, 100)
	sink := outbox.SinkFunc(func(_ context.Context, d outbox.Delivery) error {
		arrived <- d.Topic
		return nil
	})
	var running sync.WaitGroup
	defer running.Wait()
	relay := func(db outbox.Database) (*relay.Relay, func()) {
		r, err := relay.New(db, sink, relay.Config{
			Tables: []relay.Table{
				{Layout: outbox.OutboxEvents()}, {Layout: outbox.EventOutbox()}, {Layout: outbox.CrawlOutbox()},
			},
			LeaseTTL: 10 * time.Minute, PollMax: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		return r, cancel
	}
	r, stop := relay(db)
	defer stop()
	quiet := func(when string) {
		t.Helper()
		eventually(t, "a relay that is quiet "+when, func() bool {
			looks, claims, leases := db.looks.Load(), db.claims.Load(), db.leases.Load()
			for db.looks.Load() < looks+10 {
				time.Sleep(5 * time.Millisecond)
			}
			return db.claims.Load() == claims && db.leases.Load() == leases
		})
	}
	lanes := func(n int) bool {
		tables := r.Health().Tables
		for _, h := range tables {
			if h.Lanes != n {
				return false
			}
		}
		return len(tables) == 3
	}
	eventually(t, "all lanes", func() bool { return lanes(outbox.LaneCount) })
	quiet("at first")

	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql, args...)
		ok(t, err)
	}
	w, err := postgres.NewWriter(outbox.WriterConfig{})
	ok(t, err)
	insert := func(topic string) { // as a process would that tells nobody
		t.Helper()
		ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return w.Write(t.Context(), tx, event(topic)) }))
	}
	insert("one.1")
	if got := <-arrived; got != "one.1" {
		t.Errorf("%s arrived", got)
	}
	quiet("after an event")

	exec("INSERT INTO outbox_pauses (table_name, topic, destination, reason, actor) VALUES ('', '', '', 'test', 'test')")
	eventually(t, "a pause", func() bool { return r.Health().Tables["outbox_events"].Paused.Table })
	insert("two.2")
	exec("DELETE FROM outbox_pauses")
	if got := <-arrived; got != "two.2" {
		t.Errorf("%s arrived", got)
	}
	quiet("after a pause")

	_, leave := relay(postgres.NewDB(pool))
	eventually(t, "a half of the lanes each", func() bool { return lanes(outbox.LaneCount / 2) })
	leave()
	eventually(t, "all lanes again", func() bool { return lanes(outbox.LaneCount) })
	quiet("alone again")
}
