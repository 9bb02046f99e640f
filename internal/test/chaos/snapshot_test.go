package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// TestSnapshotHeld leaves a REPEATABLE READ session open under load: `make snapshot MINUTES=10`. No
// dead row version can be removed meanwhile, so the queue's index grows by an entry an event, over
// which each claim has to walk. It prints what that does to throughput, latency and size, every
// twentieth of the time, and then what is left of it once the session has ended.
func TestSnapshotHeld(t *testing.T) {
	tier.All(t)
	t.Parallel()
	if *lasts == 0 {
		tier.Skip(t, "needs a flag", "needs the flag -soak; run: make snapshot")
	}
	duration := *lasts
	w := newWorld(t, fault{name: "snapshot-held", postgres: own, load: load{perSecond: 1000, keys: 200, events: 19}})
	release := w.hold()
	w.relay(nil)
	w.relay(nil)
	w.produce()
	w.arrive(1)
	for range 20 {
		w.measure(duration / 20)
	}
	release()
	w.exec("VACUUM outbox_events")
	w.measure(max(duration/20, 2*time.Second))
	kept := w.number(`SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'outbox_events'`)
	w.finish("postgres-snapshot-held", kept+1)
}

// hold opens a session with a snapshot, and returns what ends it.
func (w *world) hold() (release func()) {
	w.t.Helper()
	conn, release := w.session(w.database())
	_, err := conn.Exec(w.t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox_events`)
	w.must(err)
	return release
}

// measure prints a line about a part of the run.
func (w *world) measure(part time.Duration) {
	w.t.Helper()
	heard, acknowledged, began := w.heard.count(), w.acknowledged(), time.Now()
	waited, samples := time.Duration(0), 0
	for time.Since(began) < part {
		written := w.acknowledged()
		at := time.Now()
		eventually(w.t, "what was acknowledged has arrived", func() bool { return w.heard.count() >= written })
		waited, samples = waited+time.Since(at), samples+1
		time.Sleep(part / 50)
	}
	seconds := time.Since(began).Seconds()
	fmt.Printf("%5.0f s  acknowledged %5.0f/s  received %5.0f/s  backlog gone after %4d ms  ",
		time.Since(w.began).Seconds(),
		float64(w.acknowledged()-acknowledged)/seconds, float64(w.heard.count()-heard)/seconds,
		(waited / time.Duration(samples)).Milliseconds())
	fmt.Printf("dead rows %7d  index of undelivered rows %6d kB  table %7d kB\n",
		w.number(`SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'outbox_events'`),
		w.number(`SELECT pg_relation_size('outbox_events_undelivered') / 1024`),
		w.number(`SELECT pg_relation_size('outbox_events') / 1024`))
}

// snapshotHeld delivers a backlog under a snapshot that keeps its dead row versions, and then what
// is written as it comes.
func snapshotHeld(w *world) int {
	w.hold()
	w.relay(nil)
	w.relay(nil)
	w.drained(w.bulk(size(300_000, 30_000), 1000))
	w.produce()
	w.arrive(1000)
	w.caughtUp(takeOver)
	w.exec("VACUUM outbox_events")
	return w.number(`SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'outbox_events'`)
}
