package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// moody is a sink that refuses a third of all deliveries for good, until it is told to be kind, and
// remembers what it took.
type moody struct {
	kind  atomic.Bool
	mu    sync.Mutex
	taken map[delivered]bool
}

type delivered struct {
	event       uuid.UUID
	destination string
}

func (m *moody) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	results := make([]outbox.Result, len(batch))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, d := range batch {
		if !m.kind.Load() && rand.IntN(3) == 0 {
			results[i].Err = outbox.Permanent(errors.New("not today"))
			continue
		}
		m.taken[delivered{d.ID, d.Destination}] = true
	}
	return results
}

// An operator replays everything, one the letters of one destination, a third discards some, two
// relays of which one comes and goes deliver, retention removes what has just been delivered, and
// producers write: nothing is lost and nobody gets an error, not even that of a deadlock.
func TestEverybodyAtOnce(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, write := range map[string]string{
		"outbox_events": `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, aggregate_type, aggregate_id, destination_topics)
			SELECT 't', now(), 'bc', '{}', 'a', n % 7, '["a", "b", "c"]' FROM generate_series(1, 40) n RETURNING id`,
		"crawl_outbox": `INSERT INTO crawl_outbox (crawl_id, event_type, payload)
			SELECT r.id, 't', '{}' FROM crawl_runs r, generate_series(1, 40) RETURNING event_id`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everybody(t, newOld(t, name, 0), write)
		})
	}
}

func everybody(t *testing.T, o *old, write string) {
	destinations, undelivered := []string{"a", "b", "c"}, "status IN ('NEW', 'FAILED')"
	if o.name == "crawl_outbox" {
		destinations, undelivered = []string{"t"}, "published_at IS NULL"
	}
	layout := oldTables[o.name].layout
	db, err := postgres.Connect(t.Context(), o.url, postgres.Config{Conns: 12})
	ok(t, err)
	t.Cleanup(db.Close)
	quiet := slog.New(slog.DiscardHandler)
	sink := &moody{taken: map[delivered]bool{}}
	relay := func(ctx context.Context) {
		r, err := relay.New(db, sink, relay.Config{
			Tables: []relay.Table{{Layout: layout}}, Logger: quiet, BatchRecords: 50, LeaseTTL: 2 * time.Second,
		})
		if err != nil {
			t.Error(err)
			return
		}
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}
	letters, err := postgres.OpenDeadLetters(t.Context(), o.admin,
		postgres.DeadLettersConfig{Layouts: []outbox.Layout{layout}})
	ok(t, err)
	by := deadletter.Operator{Actor: "test", Reason: "stress"}
	replay := func(f deadletter.Filter) int {
		sum, err := deadletter.Replay(t.Context(), letters,
			deadletter.ReplayOptions{Operator: by, Selection: deadletter.Selection{Filter: f, All: f == (deadletter.Filter{})}})
		if err != nil {
			t.Error(err)
		}
		return sum.Letters
	}

	running, stop := context.WithCancel(t.Context())
	defer stop()
	storm, calm := context.WithTimeout(t.Context(), 4*time.Second)
	defer calm()
	var steady, wild sync.WaitGroup
	steady.Go(func() { relay(running) })
	keeper := o.keeper(o.store(), retention.Config{OlderThan: time.Millisecond, Every: 5 * time.Millisecond, Batch: 20})
	steady.Go(func() { _ = keeper.Run(running) })
	wild.Go(func() {
		for storm.Err() == nil {
			short, cancel := context.WithTimeout(storm, time.Duration(200+rand.IntN(600))*time.Millisecond)
			relay(short)
			cancel()
		}
	})
	var replayed, discarded atomic.Int64
	late := time.Now().Add(tier.Patience())
	storming := func() bool { // until each operator has met something
		return storm.Err() == nil || (replayed.Load() == 0 || discarded.Load() == 0) && time.Now().Before(late)
	}
	for _, f := range []deadletter.Filter{{}, {Destination: destinations[0]}} {
		wild.Go(func() {
			for storming() {
				replayed.Add(int64(replay(f)))
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	wild.Go(func() {
		for storming() {
			n, err := letters.DiscardPage(t.Context(), deadletter.Selection{}, by, 3)
			if err != nil {
				t.Error(err)
			}
			discarded.Add(int64(n))
			time.Sleep(20 * time.Millisecond)
		}
	})
	var mu sync.Mutex
	var written []uuid.UUID
	wild.Go(func() {
		for storming() {
			ids := queryIDs(t, o, write)
			mu.Lock()
			written = append(written, ids...)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
		}
	})
	wild.Wait()
	sink.kind.Store(true)
	eventually(t, "everything is delivered or discarded", func() bool {
		replay(deadletter.Filter{})
		return one[int](t, o.admin, "SELECT count(*) FROM job_dlq WHERE replayed_at IS NULL AND discarded_at IS NULL") == 0 &&
			one[int](t, o.admin, "SELECT count(*) FROM "+o.name+" WHERE "+undelivered) == 0
	})
	stop()
	steady.Wait()
	gone := map[delivered]bool{}
	rows, err := o.admin.Query(t.Context(),
		"SELECT original_job_id, coalesce(destination, '') FROM job_dlq WHERE replayed_at IS NULL")
	ok(t, err)
	for rows.Next() {
		var d delivered
		ok(t, rows.Scan(&d.event, &d.destination))
		gone[d] = true
	}
	ok(t, rows.Err())
	lost := 0
	for _, id := range written {
		for _, d := range destinations {
			if k := (delivered{id, d}); !sink.taken[k] && !gone[k] {
				lost++
			}
		}
	}
	t.Logf("%d written, %d replayed, %d discarded, %d archived", len(written), replayed.Load(), discarded.Load(),
		one[int](t, o.admin, "SELECT count(*) FROM outbox_archive"))
	if lost > 0 || len(written) == 0 || replayed.Load() == 0 || discarded.Load() == 0 {
		t.Errorf("%d of %d events' deliveries lost", lost, len(written))
	}
}

func queryIDs(t *testing.T, o *old, sql string) (ids []uuid.UUID) {
	rows, err := o.admin.Query(t.Context(), sql)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			t.Error(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
	return ids
}
