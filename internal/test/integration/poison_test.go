package integration

import (
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Rows that cannot be delivered, of every kind that the columns of ADR-004 let in, become dead
// letters that say why. What is written between them, under other keys and behind them under their
// own, arrives. The one that the database cannot hand out is in the tests of store/postgres and a
// fault of `make chaos`.
func TestPoisonRowsHoldNobodyBack(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	poison := map[string]string{ // what makes it so: columns and values
		"list":    `destination_topics) VALUES ('list', now(), 's', 'list', '{}', '{"not": "a list"}')`,
		"empty":   `destination_topics) VALUES ('empty', now(), 's', 'empty', '{}', '["fine", ""]')`,
		"numbers": `destination_topics) VALUES ('numbers', now(), 's', 'numbers', '{}', '[1, 2]')`,
		"no name": `destination_topics) VALUES ('', now(), 's', 'no name', '{}', NULL)`,
	}
	const good = `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, aggregate_id, payload) VALUES ('good', now(), 's', $1, '{}')`
	w.exec(t, "ALTER TABLE outbox_events DISABLE TRIGGER outbox_events_refuse") // as in a table from before it
	for name, row := range poison {
		w.exec(t, good, "others")
		w.exec(t, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, aggregate_id, payload, `+row)
		w.exec(t, good, name)
	}
	w.relay(t, nil, "--table", "outbox_events")
	received := w.wait(t, 2*len(poison), 500*time.Millisecond)
	if len(received) != 2*len(poison) {
		t.Errorf("received %d messages, want %d", len(received), 2*len(poison))
	}
	for _, m := range received {
		if m.Type != "good" {
			t.Errorf("received a message of type %q", m.Type)
		}
	}
	w.eventually(t, "each is a dead letter with a reason", `SELECT count(*) = 4 AND count(DISTINCT event_key) = 4
		AND bool_and(error_reason IN ('DeserializationFailed', 'HandlerMissing') AND error_history -> 0 ->> 'error' <> '') FROM job_dlq`)
	w.holds(t, "nothing is left", `SELECT count(*) = 0 FROM outbox_events WHERE status IN ('NEW', 'FAILED')`)
}

// An event that kills every process that publishes it is found by the relays that die of it,
// becomes a dead letter, and costs the other events nothing but time.
func TestEventThatKillsTheRelay(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	const events = 3000
	w.backlog(t, events)
	var poison string
	if err := w.pool.QueryRow(t.Context(),
		"SELECT id::text FROM outbox_events ORDER BY position OFFSET 1234 LIMIT 1").Scan(&poison); err != nil {
		t.Fatal(err)
	}
	deaths := 0
	for w.undelivered(t) > 0 {
		relay := w.relay(t, []string{"OUTBOX_FAULT_POISON=" + poison}, "--table", "outbox_events", "--lease-ttl", "1s")
		for w.undelivered(t) > 0 {
			if state := processState(relay); state == "Z" {
				deaths++
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if deaths > 12 {
			t.Fatal("a dozen relays died of one event")
		}
	}
	if deaths < 3 {
		t.Errorf("%d relays died: the test did not meet what it is for", deaths)
	}
	received := w.wait(t, events-1, 300*time.Millisecond)
	if len(received) != events-1 {
		t.Errorf("received %d messages, want %d", len(received), events-1)
	}
	for _, m := range received {
		if m.ID == poison {
			t.Error("the poison was published")
		}
	}
	w.holds(t, "only the poison is dead",
		"SELECT count(*) = 1 AND min(id::text) = '"+poison+"' FROM outbox_events WHERE status = 'DEAD'")
	w.holds(t, "its letter says why",
		`SELECT count(*) = 1 AND min(error_history -> -1 ->> 'error') LIKE 'the relay died while it published this event%' FROM job_dlq`)
	t.Logf("%d relays died", deaths)
}

// undelivered counts the rows of outbox_events that are neither delivered nor dead.
func (w *world) undelivered(t *testing.T) (n int) {
	t.Helper()
	if err := w.pool.QueryRow(t.Context(),
		"SELECT count(*) FROM outbox_events WHERE status IN ('NEW', 'FAILED')").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
