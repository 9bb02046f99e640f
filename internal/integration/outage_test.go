package integration

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/testenv"
)

// backlog writes n events over 50 keys, numbered.
func (w *world) backlog(t *testing.T, n int) {
	t.Helper()
	w.exec(t, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_id, source_bc, payload)
		SELECT 'e', now(), (i % 50)::text, 's', to_jsonb(i) FROM generate_series(1, $1::int) i`, n)
}

// drained waits for a backlog to be settled, and checks that each event arrived once and in order.
func (w *world) drained(t *testing.T, n int) {
	t.Helper()
	w.eventually(t, "everything is settled", `SELECT count(*) = 0 FROM outbox_events WHERE status <> 'SENT'`)
	received := w.wait(t, n, 500*time.Millisecond)
	if len(received) != n {
		t.Errorf("received %d messages, want %d", len(received), n)
	}
	last := map[string]int{}
	for _, m := range received {
		var i int
		if err := json.Unmarshal(m.Data, &i); err != nil {
			t.Fatal(err)
		}
		if i <= last[m.Key] {
			t.Fatalf("key %s: event %d arrived after %d", m.Key, i, last[m.Key])
		}
		last[m.Key] = i
	}
}

// The database is killed in the middle of a drain, comes back, and is shut down without a goodbye a second time. Settles that were not on disk yet
// are lost (the relay's commits are asynchronous): Redis refuses what is published again.
func TestPostgresKilledDuringADrain(t *testing.T) {
	t.Parallel()
	const events = 40_000
	server, err := testenv.StartPostgres(t.Context(), testenv.PostgresConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	w := newWorldIn(t, server.URL("postgres"))
	w.backlog(t, events)
	w.relay(t, nil, "--table", "outbox_events", "--batch", "100", "--lease-ttl", "3s")
	for i, kill := range []func() error{server.Kill, func() error { return syscall.Kill(server.PID(), syscall.SIGQUIT) }} {
		before := len(w.wait(t, (i+1)*events/10, 0))
		if err := kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := len(w.wait(t, 0, 0)); got == events {
			t.Fatalf("everything had arrived (%d before the kill): the test did not meet what it is for", before)
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	w.drained(t, events)
}

// An administrator, or a proxy, ends every session of the relay five times a second for six seconds.
func TestBackendsTerminatedAllTheTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.relay(t, nil, "--table", "outbox_events", "--batch", "20", "--lease-ttl", "3s")
	w.eventually(t, "the relay holds the lanes", `SELECT count(*) = 64 FROM outbox_lanes WHERE table_name = 'outbox_events' AND owner IS NOT NULL`)
	done := make(chan *history)
	go func() { done <- writeConcurrently(t, w) }()
	ended := 0
	for range 30 {
		var n int
		if err := w.pool.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'outbox relay'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		ended += n
		time.Sleep(200 * time.Millisecond)
	}
	if ended < 30 {
		t.Fatalf("only %d sessions were ended: the test did not meet what it is for", ended)
	}
	w.holds(t, "something is delivered meanwhile", `SELECT count(*) > 0 FROM outbox_events WHERE status = 'SENT'`)
	h := <-done
	h.check(t, w, w.wait(t, len(h.committed), time.Second))
	t.Logf("%d sessions ended", ended)
}

// Redis takes a batch and stands still for longer than the relay waits for an answer. The batch's outcome is unknown, it is sent again, and
// Redis then runs both.
func TestRedisPausedBeyondThePublishTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const events = 20_000
	w.backlog(t, events)
	w.relay(t, nil, "--table", "outbox_events", "--batch", "100")
	if before := len(w.wait(t, 1000, 0)); before == events {
		t.Fatal("everything had arrived: the test did not meet what it is for")
	}
	w.command(t, "CLIENT", "PAUSE", "7000", "ALL")
	time.Sleep(6 * time.Second)
	if got := len(w.wait(t, 1000, 0)); got == events {
		t.Fatal("everything had arrived before the pause: the test did not meet what it is for")
	}
	w.drained(t, events)
	w.holds(t, "no attempt was counted", `SELECT max(retry_count) = 0 FROM outbox_events`)
}
