package operatetest

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func factTests() []behaviour {
	return []behaviour{
		{name: "facts name each queue with its readers, counts and failing events", run: readsFacts},
		{name: "a table that cannot be counted hides no other table", run: readsFactsBesideBrokenTable},
	}
}

// facts reads the facts of the seeds' tables.
func (s *suite) facts(t *testing.T, extra ...outbox.Layout) operate.Facts {
	t.Helper()
	var tables []operate.Watched
	for _, l := range append(tabletest.Layouts(), extra...) {
		tables = append(tables, operate.Watched{Layout: l})
	}
	f, err := s.Operators.Facts(t.Context(), tables, 100)
	if err != nil {
		t.Fatal(err)
	}
	if time.Since(f.At).Abs() > time.Minute {
		t.Errorf("the facts are of %s", f.At)
	}
	return f
}

// queue returns a queue by its name in leases.
func queue(t *testing.T, f operate.Facts, name string) operate.Queue {
	t.Helper()
	for _, q := range f.Queues {
		if q.Name == name {
			return q
		}
	}
	t.Fatalf("there is no queue %s in %+v", name, f.Queues)
	return operate.Queue{}
}

func readsFacts(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	f := s.facts(t)
	if len(f.Queues) != 3 || f.ReadOnly != "" || f.Parts["outbox_lanes"].State != operate.Known {
		t.Errorf("of empty tables: %+v", f)
	}
	for _, q := range f.Queues {
		if q.State != operate.Known || q.Waiting != 0 || q.Oldest != nil || q.Held+q.Expired != 0 ||
			len(q.Processes) != 0 {
			t.Errorf("empty queue %+v", q)
		}
	}
	for i := range 120 {
		s.rows.Place(t, "outbox_events", "t", string(rune('a'+i%3)))
	}
	s.Exec(t, "UPDATE outbox_events SET created_at = ?1 WHERE position = (SELECT min(position) FROM outbox_events)",
		time.Now().Add(-time.Hour))
	s.Exec(t, "UPDATE outbox_events SET status = 'FAILED', retry_count = 2, error_message = 'no such queue', "+
		"next_retry_at = ?1 "+
		"WHERE position = (SELECT min(position) FROM outbox_events)", time.Now().Add(time.Hour))
	s.Exec(t, `INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, payload,
		written_at, status) VALUES ('event_outbox', 'audit', 1, ?1, '["d"]', 't', '{}', ?2, 'pending')`,
		tabletest.NewID(t).String(), time.Now().Add(-2*time.Minute))
	alive, gone := tabletest.NewID(t), tabletest.NewID(t)
	s.Exec(t, `INSERT INTO outbox_relays (table_name, owner, name, joined_at, expires_at, serves, health, health_since)
		VALUES ('outbox_events', ?1, 'one', ?2, ?3, 'all', '{"table": "slow disk", "sinks": {"default": "refused"}}',
			?2)`,
		alive.String(), time.Now().Add(-time.Minute), time.Now().Add(time.Minute))
	for lane, owner := range map[int]string{3: alive.String(), 4: alive.String(), 5: gone.String()} {
		end := time.Now().Add(time.Minute)
		if owner == gone.String() {
			end = time.Now().Add(-time.Minute)
		}
		s.Exec(t, "INSERT INTO outbox_lanes (table_name, lane, owner, epoch, expires_at, crashes) "+
			"VALUES ('outbox_events', ?1, ?2, 1, ?3, 2)",
			lane, owner, end)
	}
	s.Exec(t, "INSERT INTO outbox_readers (table_name, reader, since) VALUES ('outbox_events', 'group:bills', ?1)",
		time.Now())
	s.Exec(t, "INSERT INTO outbox_pauses (table_name, topic, destination, reason, actor, paused_at) "+
		"VALUES ('outbox_events', '', '', 'tests', 'me', ?1)", time.Now())

	f = s.facts(t)
	q := queue(t, f, "outbox_events")
	if q.Waiting != 100 || !q.Bounded || q.Oldest == nil || *q.Oldest < 3500 || *q.Oldest > 3700 || q.Retrying != 1 ||
		q.Blocked != 33 || q.Keys != 1 || q.Group != "bills" || !q.Paused || q.Inserted == nil {
		t.Errorf("outbox_events: %+v", q)
	}
	if q.Held != 2 || q.Expired != 1 || q.Suspect != 3 || q.LastLease == nil {
		t.Errorf("lanes of outbox_events: %+v", q)
	}
	if len(q.Processes) != 1 || len(q.Alive()) != 1 || q.Processes[0].Owner != alive || q.Processes[0].Lanes != 2 ||
		q.Processes[0].Problem != "slow disk" || q.Processes[0].Sinks["default"] != "refused" ||
		q.Processes[0].Since == nil {
		t.Errorf("processes of outbox_events: %+v", q.Processes)
	}
	if len(q.Failing) != 1 || q.Failing[0].Attempts != 2 || q.Failing[0].Error != "no such queue" ||
		q.Failing[0].NextAt == nil || q.Failing[0].At == nil || *q.Failing[0].Key != "a" || len(q.Failing[0].ID) != 36 {
		t.Errorf("failing events of outbox_events: %+v", q.Failing)
	}
	audit := queue(t, f, "outbox_deliveries/event_outbox/audit")
	if audit.Waiting != 1 || audit.Sink != "audit" || audit.Table != "event_outbox" || audit.Oldest == nil ||
		*audit.Oldest < 110 {
		t.Errorf("pending deliveries: %+v", audit)
	}
	if len(f.Pauses) != 1 || f.Pauses[0].Table != "outbox_events" || f.Pauses[0].Actor != "me" {
		t.Errorf("pauses: %+v", f.Pauses)
	}
}

func readsFactsBesideBrokenTable(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	s.rows.Place(t, "outbox_events", "t", "k")
	missing, odd := outbox.OutboxEvents(), outbox.OutboxEvents()
	missing.Table, odd.Table = "no_such_table", "odd_events"
	s.Exec(t, "CREATE TABLE odd_events AS SELECT * FROM outbox_events")
	odd.LastError = "no_such_column"
	f := s.facts(t, missing, odd)
	if q := queue(t, f, "outbox_events"); q.State != operate.Known || q.Waiting != 1 {
		t.Errorf("outbox_events: %+v", q)
	}
	if q := queue(t, f, "odd_events"); q.State != operate.Unknown || !strings.Contains(q.Why, "no_such_column") {
		t.Errorf("a table that lacks a column: %+v", q)
	}
	for _, q := range f.Queues {
		if q.Name == "no_such_table" {
			t.Errorf("a table that is neither installed nor wanted: %+v", q)
		}
	}
}
