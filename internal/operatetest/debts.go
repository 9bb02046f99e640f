package operatetest

import (
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/operate"
	"github.com/outboxrelay/outbox/internal/tabletest"
)

func debtTests() []behaviour {
	return []behaviour{
		{name: "what sinks owe is counted by sink and table", run: countsDebts},
		{name: "a sink of a table with routes is paused by itself, or with its table", run: pausesOneSink},
	}
}

func countsDebts(t *testing.T, s *suite) {
	debts := func() []operate.Debt {
		t.Helper()
		all, err := s.Debts(t)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := debts(); len(got) != 0 {
		t.Errorf("nothing is owed, and there are %+v", got)
	}
	now := time.Now()
	add := func(table, sink, status string, age, retry time.Duration) {
		t.Helper()
		var due any
		if retry != 0 {
			due = now.Add(retry)
		}
		s.Exec(t, `INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, payload,
			written_at, status, next_retry_at) VALUES (?1, ?2, 1, ?3, '["d"]', 't', '{}', ?4, ?5, ?6)`,
			table, sink, tabletest.NewID(t).String(), now.Add(-age), status, due)
	}
	add("outbox_events", "b", "pending", time.Hour, 0)
	add("outbox_events", "b", "pending", 2*time.Hour, time.Hour)
	add("outbox_events", "b", "delivered", 9*time.Hour, 0)
	add("outbox_events", "b", "dead", 9*time.Hour, 0)
	add("event_outbox", "b", "dead", time.Hour, 0)
	add("outbox_events", "a", "pending", time.Minute, -time.Hour)
	got := debts()
	want := []operate.Debt{
		{Sink: "a", Table: "outbox_events", Owed: 1},
		{Sink: "b", Table: "event_outbox", Dead: 1},
		{Sink: "b", Table: "outbox_events", Owed: 2, Retrying: 1, Dead: 1},
	}
	ages := []time.Duration{time.Minute, 0, 2 * time.Hour}
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i, d := range got {
		if ages[i] == 0 && d.Oldest != nil || ages[i] != 0 && (d.Oldest == nil || *d.Oldest < ages[i].Seconds()-1 ||
			*d.Oldest > ages[i].Seconds()+600) {
			t.Errorf("%s of %s: the oldest is %v old, want %s", d.Sink, d.Table, d.Oldest, ages[i])
		}
		if d.Oldest = nil; d != want[i] {
			t.Errorf("got %+v, want %+v", d, want[i])
		}
	}
}

func pausesOneSink(t *testing.T, s *suite) {
	p := s.Pauses(t)
	paused := func(layout outbox.Layout) bool {
		t.Helper()
		leased, err := s.Table(t, layout).Lease(t.Context(),
			outbox.LeaseRequest{Owner: tabletest.NewID(t), Name: "test", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return leased.Paused.Table
	}
	a, b := outbox.DeliveriesOf("outbox_events", "a"), outbox.DeliveriesOf("outbox_events", "b")
	pause := func(table string) {
		t.Helper()
		if err := p.Pause(t.Context(), operate.Pause{Table: table, Actor: "me", Reason: "because"}); err != nil {
			t.Fatal(err)
		}
	}
	pause(a.Name())
	if !paused(a) || paused(b) || paused(outbox.OutboxEvents()) {
		t.Error("a pause of one sink holds another one, or not its own")
	}
	pause("outbox_events")
	if !paused(a) || !paused(b) || paused(outbox.DeliveriesOf("event_outbox", "b")) {
		t.Error("a pause of the table holds not all of its sinks, or one of another table")
	}
}
