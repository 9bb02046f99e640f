package operatetest

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func debtTests() []behaviour {
	return []behaviour{
		{name: "what sinks owe is counted by sink and table", run: countsDebts},
		{name: "a dead delivery counts while its letter waits, and gets another where that was purged", run: countsLetters},
		{name: "each sink's letter of an event is replayed by itself", run: replaysOneSinksLetter},
		{name: "what a sink owes is another's, once, and the move is recorded", run: movesDebts},
		{name: "a sink of a table with routes is paused by itself, or with its table", run: pausesOneSink},
	}
}

func countsDebts(t *testing.T, s *suite) {
	debts := func() []operate.Debt {
		t.Helper()
		all, err := s.Operators.Debts(t.Context())
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
	collected := s.deliveryLetters(t)
	if n, err := deadletter.Collect(t.Context(), collected, "outbox_deliveries", operator); err != nil || n != 2 {
		t.Fatalf("collected %d letters, error %v, want those of both dead deliveries", n, err)
	}
	add("event_outbox", "b", "dead", time.Hour, 0) // has no letter
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

// deliveryLetters are those of outbox_deliveries.
func (s *suite) deliveryLetters(t *testing.T) deadletter.Store {
	t.Helper()
	return s.Letters(t, outbox.OutboxEvents(), outbox.DeliveriesOf("", ""))
}

func countsLetters(t *testing.T, s *suite) {
	d := s.deliveryLetters(t)
	id := tabletest.NewID(t)
	s.owe(t, "outbox_events", "a", id, "dead", 0)
	s.owe(t, "outbox_events", "bb", id, "dead", 0)
	s.owe(t, "outbox_events", "c", id, "delivered", 0)
	dead := func(want ...int) {
		t.Helper()
		all, err := s.Operators.Debts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, debt := range all {
			got[debt.Sink] = debt.Dead
		}
		if got["a"] != want[0] || got["bb"] != want[1] {
			t.Errorf("dead are %v, want %v of a and bb", got, want)
		}
	}
	collect := func(want int) {
		t.Helper()
		if n, err := deadletter.Collect(t.Context(), d, "outbox_deliveries", operator); err != nil || n != want {
			t.Errorf("collected %d letters, error %v, want %d", n, err, want)
		}
	}
	// of returns the pending letter of a sink, which its attempts tell: a row of the event is as
	// dead as the other.
	of := func(attempts int) deadletter.Letter {
		t.Helper()
		all, _, err := d.List(t.Context(), deadletter.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if l.Attempts == attempts {
				if l.Table != "outbox_deliveries" || l.OriginalID != id || l.Destination != "d" || l.Key != "42" ||
					l.Tenant != "acme" || l.LastError != []string{1: "a", 2: "bb"}[attempts]+": set dead by hand" {
					t.Errorf("letter %+v", l)
				}
				return l
			}
		}
		t.Fatalf("no letter after %d attempts in %+v", attempts, all)
		return deadletter.Letter{}
	}
	dead(0, 0)
	collect(2)
	collect(0)
	dead(1, 1)
	discarded := deadletter.Selection{IDs: []uuid.UUID{of(1).ID}}
	if n, err := deadletter.Discard(t.Context(), d, discarded, operator); err != nil || n != 1 {
		t.Fatalf("discarded %d, error %v", n, err)
	}
	dead(0, 1)
	collect(0)
	purge := deadletter.Purge{Discarded: true}
	if n, err := purge.Run(t.Context(), d, operator); err != nil || n != 1 {
		t.Fatalf("purged %d, error %v", n, err)
	}
	dead(0, 1)
	collect(1) // the other sink's letter of the same event is none of this one's
	dead(1, 1)
}

// Two sinks owe an event, and both have given it up. Replaying one letter revives the row of its
// sink, and replaying both revives both: none stays dead behind a letter that counts as replayed.
func replaysOneSinksLetter(t *testing.T, s *suite) {
	d := s.deliveryLetters(t)
	owed := func(what string, want ...int) {
		t.Helper()
		all, err := s.Operators.Debts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]operate.Debt{}
		for _, debt := range all {
			got[debt.Sink] = debt
		}
		if got["a"].Owed != want[0] || got["a"].Dead != want[1] || got["b"].Owed != want[2] || got["b"].Dead != want[3] {
			t.Errorf("%s: the sinks have %+v, want %v", what, got, want)
		}
	}
	add := func() {
		id := tabletest.NewID(t)
		s.owe(t, "outbox_events", "a", id, "dead", 0)
		s.owe(t, "outbox_events", "b", id, "dead", 0)
		if n, err := deadletter.Collect(t.Context(), d, "outbox_deliveries", operator); err != nil || n != 2 {
			t.Fatalf("collected %d letters, error %v", n, err)
		}
	}
	replay := func(chosen deadletter.Selection, want int) {
		t.Helper()
		done, err := deadletter.Replay(t.Context(), d, deadletter.ReplayOptions{Selection: chosen, Operator: operator})
		if err != nil || done.Letters != want || done.Skipped != 0 {
			t.Errorf("replayed %+v, error %v, want %d letters", done, err, want)
		}
	}
	add()
	owed("both are dead", 0, 1, 0, 1)
	all, _, err := d.List(t.Context(), deadletter.Filter{})
	if err != nil || len(all) != 2 {
		t.Fatalf("%d letters, error %v", len(all), err)
	}
	first := all[0]
	replay(deadletter.Selection{IDs: []uuid.UUID{first.ID}}, 1)
	if strings.HasPrefix(first.LastError, "a:") {
		owed("one is replayed", 1, 0, 0, 1)
	} else {
		owed("one is replayed", 0, 1, 1, 0)
	}
	replay(deadletter.Selection{IDs: []uuid.UUID{all[1].ID}}, 1)
	owed("the other is replayed", 1, 0, 1, 0)
	add()
	replay(deadletter.Selection{All: true}, 2)
	owed("both of an event are replayed at once", 2, 0, 2, 0)
}

func movesDebts(t *testing.T, s *suite) {
	had := tabletest.NewID(t)
	s.owe(t, "outbox_events", "a", had, "pending", time.Hour)
	s.owe(t, "outbox_events", "b", had, "delivered", 0)
	for range 3 {
		s.owe(t, "outbox_events", "a", tabletest.NewID(t), "pending", time.Hour)
	}
	s.owe(t, "outbox_events", "a", tabletest.NewID(t), "dead", 0)
	s.owe(t, "event_outbox", "a", tabletest.NewID(t), "pending", 0)
	m := operate.DebtMove{Table: "outbox_events", Sink: "a", To: "b",
		Skip: operate.Skip{Actor: operator.Actor, Reason: operator.Reason, Run: tabletest.NewID(t)}}
	var all operate.DebtMoved
	for range 4 {
		done, err := s.Operators.MoveDebt(t.Context(), m, 2)
		if err != nil || done.Moved+done.Had > 2 {
			t.Fatalf("moved %+v, error %v", done, err)
		}
		all.Moved, all.Had = all.Moved+done.Moved, all.Had+done.Had
	}
	if all != (operate.DebtMoved{Moved: 3, Had: 1}) {
		t.Errorf("moved %+v, want 3 and 1 that b had", all)
	}
	debts, err := s.Operators.Debts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, d := range debts {
		got[d.Sink+" of "+d.Table] = d.Owed - 100*d.Retrying
	}
	want := map[string]int{"a of event_outbox": 1, "b of outbox_events": 3}
	if !maps.Equal(got, want) {
		t.Errorf("owed are %v, want %v, and none of it waits for another attempt", got, want)
	}
	actions, _, err := s.deliveryLetters(t).Actions(t.Context(), deadletter.ActionFilter{Action: "move"})
	if err != nil || len(actions) != 2 || actions[0].Actor != operator.Actor || actions[0].Letters != 2 {
		t.Errorf("recorded %+v, error %v", actions, err)
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
	pause := func(to string) {
		t.Helper()
		one := operate.Pause{Table: "outbox_events", To: to, Actor: "me", Reason: "because"}
		if err := p.Pause(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	pause("a")
	if !paused(a) || paused(b) || paused(outbox.OutboxEvents()) {
		t.Error("a pause of one sink holds another one, or not its own")
	}
	all, err := p.Pauses(t.Context())
	if err != nil || len(all) != 1 || all[0].Table != "outbox_events" || all[0].To != "a" {
		t.Errorf("pauses %+v, error %v, want that of sink a", all, err)
	}
	pause("")
	if !paused(a) || !paused(b) || paused(outbox.DeliveriesOf("event_outbox", "b")) {
		t.Error("a pause of the table holds not all of its sinks, or one of another table")
	}
	one := operate.Pause{Table: "outbox_events", To: "a", Actor: "me"}
	if found, err := p.Resume(t.Context(), one); err != nil || !found {
		t.Errorf("resume a sink: %t, error %v", found, err)
	}
	if all, err = p.Pauses(t.Context()); err != nil || len(all) != 1 || all[0].To != "" {
		t.Errorf("pauses %+v, error %v, want that of the table", all, err)
	}
}
