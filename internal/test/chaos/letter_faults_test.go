package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/store/postgres"
)

var letterFaults = []fault{
	{name: "letters-of-rows-gone", strike: lettersReplayed(true)},
	{name: "letters-behind-newer-events", strike: lettersReplayed(false)},
}

// lettersReplayed has events die at a sink with a defect while later ones of their keys are
// delivered. Once the sink is mended, an operator replays them all, twice and from two places at
// once, under load. Those whose row is gone stay letters and are named; each of the others arrives
// once.
func lettersReplayed(gone bool) func(*world) int {
	return func(w *world) int {
		var mended atomic.Bool
		var last atomic.Int64 // milliseconds: events from then on are well
		last.Store(math.MaxInt64)
		w.panickyRelay(func(id uuid.UUID) bool { // one in 256
			return id[15] == 7 && !mended.Load() && uuid7.Time(id).UnixMilli() < last.Load()
		})
		w.produce()
		eventually(w.t, "some events die", func() bool { return w.number(`SELECT count(*) FROM job_dlq`) >= 5 })
		last.Store(time.Now().UnixMilli())
		w.arrive(400) // later ones of the same keys
		first := fmt.Sprintf("%08x-%04x-7000-8000-000000000000", last.Load()>>16, last.Load()&0xffff)
		w.eventually("those that may still die have died",
			`SELECT count(*) = 0 FROM outbox_events WHERE status IN ('NEW', 'FAILED') AND id < '`+first+`'`)
		mended.Store(true)
		w.dead = w.number(`SELECT count(*) FROM job_dlq`)
		kept := w.dead
		struck := w.number(`SELECT count(*) FROM outbox_events d WHERE status = 'DEAD' AND EXISTS (
			SELECT FROM outbox_events WHERE aggregate_id = d.aggregate_id AND position > d.position AND status = 'SENT')`)
		if gone {
			w.exec(`DELETE FROM outbox_events WHERE id IN (SELECT original_job_id FROM job_dlq ORDER BY id LIMIT 3)`)
			struck = 3
			kept -= struck
		}
		other := make(chan struct{})
		go func() {
			defer close(other)
			_, _ = w.outbox("dlq", "replay", "--all", "--yes") // what it leaves, the one below finds
		}()
		said, _ := w.outbox("dlq", "replay", "--all", "--yes") // an error too where the other was faster
		<-other                                                // has come to the same end
		if named := strings.Contains(said, "its row is no longer in outbox_events"); named != gone {
			w.t.Errorf("rows are gone: %t; the replay said: %s", gone, said)
		}
		w.eventually("what was replayed is delivered",
			`SELECT count(*) = 0 FROM outbox_events WHERE generation > 0 AND status <> 'SENT'`)
		if n := w.number(`SELECT count(*) FROM outbox_events WHERE generation = 1`); n != kept {
			w.t.Errorf("%d events were put back, want %d of %d", n, kept, w.dead)
		}
		if n := w.number(`SELECT count(*) FROM job_dlq WHERE replayed_at IS NULL`); n != w.dead-kept {
			w.t.Errorf("%d letters are pending, want the %d whose rows are gone", n, w.dead-kept)
		}
		w.caughtUp(takeOver)
		return struck
	}
}

// panickyRelay runs a relay in this process, as a service would that has a sink of its own, with a
// sink that panics at some events.
func (w *world) panickyRelay(refuses func(uuid.UUID) bool) *panicky {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	db, err := postgres.Connect(ctx, w.relayDatabase, postgres.Config{})
	w.must(err)
	w.t.Cleanup(db.Close)
	redis, err := redispubsub.Open(ctx, w.relaySink, redispubsub.Config{})
	w.must(err)
	w.t.Cleanup(func() { _ = redis.Close() })
	sink := &panicky{Sink: redis, refuses: refuses}
	r, err := relay.New(db, sink, relay.Config{
		Tables: []relay.Table{{Layout: outbox.OutboxEvents()}}, LeaseTTL: ttl, MaxAttempts: 3,
		Backoff: relay.Backoff{Base: 20 * time.Millisecond},
		Logger:  slog.New(slog.NewJSONHandler(w.t.Output(), nil)),
	})
	w.must(err)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return sink
}
