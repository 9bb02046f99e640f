package integration

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// split waits until n relays hold the lanes of outbox_events between them, none more than one lane
// ahead of another, and returns how long it took, in the time of a machine that nobody else uses.
func (w *world) split(t *testing.T, n int) (took time.Duration) {
	t.Helper()
	began := time.Now()
	var slow testenv.Slow
	for deadline := began.Add(tier.Patience()); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		slow.Look()
		var relays, least, most, all int
		if err := w.pool.QueryRow(t.Context(), `SELECT count(*), coalesce(min(lanes), 0), coalesce(max(lanes), 0), coalesce(sum(lanes), 0)::int FROM (
			SELECT owner, count(*) AS lanes FROM outbox_lanes l LEFT JOIN outbox_relays r USING (table_name, owner)
			 WHERE table_name = 'outbox_events' AND greatest(l.expires_at, r.expires_at) > now() GROUP BY owner) held`).
			Scan(&relays, &least, &most, &all); err != nil {
			t.Fatal(err)
		}
		if relays == n && most-least <= 1 && all == 64 {
			return slow.Shrink(time.Since(began))
		}
	}
	t.Fatalf("%d relays did not come to share the lanes", n)
	return 0
}

// Relays join, leave and die under load; the lanes are shared evenly by those that are there,
// within one lease time of a join and at once after a polite leave. Every event arrives once and in
// order, and none is even refused as a copy while relays only join and leave: a lane is handed over
// between two batches.
func TestRelaysShareTheLanes(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const ttl = 3 * time.Second
	w := newWorld(t)
	flags := []string{"--table", "outbox_events", "--lease-ttl", ttl.String(), "--batch", "50"}
	relays := []*exec.Cmd{w.relay(t, nil, flags...)}
	w.split(t, 1)
	done := make(chan *history)
	go func() { done <- writeConcurrently(t, w, orderEvents) }()
	for n := 2; n <= 3; n++ {
		relays = append(relays, w.relay(t, nil, flags...))
		if took := w.split(t, n); took > ttl {
			t.Errorf("%d relays shared the lanes after %s, want within the lease time of %s", n, took, ttl)
		}
	}
	noError(t, relays[0].Process.Signal(syscall.SIGTERM))
	if err := relays[0].Wait(); err != nil {
		t.Errorf("the relay that was told to stop: %v", err)
	}
	if took := w.split(t, 2); took > time.Second {
		t.Errorf("the lanes of a relay that left were taken after %s, want within a second", took)
	}
	w.holds(t, "nothing was taken from a relay that lives, or counted as a crash",
		"SELECT max(crashes) = 0 FROM outbox_lanes")
	noError(t, relays[1].Process.Kill())
	if took := w.split(t, 1); took > ttl+2*time.Second {
		t.Errorf("the lanes of a relay that was killed were taken after %s, want within the lease time and two seconds", took)
	}
	h := <-done
	h.check(t, w, w.wait(t, len(h.committed), time.Second))
	w.eventually(t, "everything is settled", `SELECT count(*) = 0 FROM outbox_events WHERE status <> 'SENT'`)
	w.eventually(t, "no crash is left on the books", "SELECT max(crashes) = 0 FROM outbox_lanes")
}
