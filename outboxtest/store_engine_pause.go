package outboxtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/tables"
)

func pauseTests() []storeTest {
	return []storeTest{
		{name: "a claim leaves out paused topics, and what is behind them in their keys", run: claimsUnpaused},
		{name: "a paused destination is found in events' own lists", run: claimsUnpausedLists},
		{name: "a lease tells what is paused of its table", run: leaseTellsPauses},
		{name: "a running relay obeys a pause and its end, and keeps the order", run: relayObeysPauses},
	}
}

func claimsUnpaused(t *testing.T, s *storeSuite) {
	s.makeRun(t)
	servers := map[string]*server{}
	template, err := outbox.ParseTemplate("to {topic} of {source}")
	if err != nil {
		t.Fatal(err)
	}
	for _, layout := range seedLayouts() {
		r := s.serve(t, layout)
		servers[layout.Table] = r
		// a: goes, waits, waits behind that. b: waits whole. c: goes whole. A run has one key: what is behind its first
		// paused event waits.
		for _, e := range [][2]string{{"order.placed", "a"}, {"50%_x", "b"}, {"order.paid", "c"}, {"50%_x", "a"},
			{"order.packed", "a"}, {"order.placed", "b"}, {"50ax", "c"}} {
			s.place(t, layout.Table, e[0], e[1])
		}
		limit := everything
		limit.Destination = template
		want := "order.placed order.paid 50ax"
		if layout.Table == "crawl_outbox" {
			want = "order.placed"
		}
		for _, fair := range []bool{false, true} {
			for _, paused := range []outbox.Paused{
				{Topics: []string{"none.*", "50%_*"}},
				{Destinations: []string{"none.*", "to 50%_* of *"}},
			} {
				limit.Paused, limit.Fair = paused, fair
				var got []string
				for _, rec := range r.claimLimited(r.lanes, limit) {
					got = append(got, rec.Topic)
				}
				if strings.Join(got, " ") != want {
					t.Errorf("%s, fair %t, %+v: claimed %q, want %q", layout.Table, fair, paused, got, want)
				}
			}
		}
		if n := len(r.claim()); n != 7 {
			t.Errorf("%s: claimed %d without a pause, want 7", layout.Table, n)
		}
	}
	// A long backlog of a paused topic, at the front, hides nothing.
	r := servers["outbox_events"]
	for range 60 {
		s.place(t, "outbox_events", "paused", "")
	}
	s.Exec(t, "UPDATE outbox_events SET aggregate_id = NULL WHERE event_topic = 'paused'")
	last := s.place(t, "outbox_events", "last", "z")
	for _, paused := range []outbox.Paused{{Topics: []string{"paused"}}, {Destinations: []string{"*paused*"}}} {
		limit := outbox.ClaimLimit{Records: 50, Bytes: 1 << 20, Paused: paused, Destination: template}
		found := r.claimLimited(r.lanes, limit)
		if !slices.ContainsFunc(found, func(rec *outbox.Record) bool { return rec.ID == last }) {
			t.Errorf("%+v: claimed %d, and not what is behind the backlog", paused, len(found))
		}
	}
}

func claimsUnpausedLists(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	template, err := outbox.ParseTemplate("{topic}")
	if err != nil {
		t.Fatal(err)
	}
	for key, list := range map[string]string{
		"a": `["mail", "audit"]`, "b": `["audit"]`, "c": `["mailing"]`, "d": `[]`, "e": `["say \"mail\""]`,
		"f": `["Größe", "R&D <1>"]`,
	} {
		s.place(t, "outbox_events", "topic "+key, key)
		s.Exec(t, "UPDATE outbox_events SET destination_topics = '"+list+"' WHERE aggregate_id = '"+key+"'")
	}
	s.Exec(t, `UPDATE outbox_events SET delivered_to = '["mail"]' WHERE aggregate_id = 'c'`)
	for _, c := range []struct{ paused, want string }{
		{"mail", "bcdef"}, {"mail*", "bdef"}, {"*", ""}, {"a*t", "cdef"}, {"topic d", "abcef"}, {"topic*", "abcef"},
		{`say "mail"`, "abcdf"}, {"Gr*e", "abcde"}, {"mail, audit", "abcdef"}, {"mail*audit", "abcdef"}, {"[a-z]*", "abcdef"},
		{"R&D <1>", "abcde"},
	} {
		limit := everything
		limit.Destination, limit.Paused = template, outbox.Paused{Destinations: []string{c.paused}}
		var got []string
		for _, rec := range r.claimLimited(r.lanes, limit) {
			got = append(got, rec.AggregateID)
		}
		slices.Sort(got)
		if strings.Join(got, "") != c.want {
			t.Errorf("with %q paused: claimed the keys %q, want %q", c.paused, got, c.want)
		}
	}
}

func leaseTellsPauses(t *testing.T, s *storeSuite) {
	p, r := s.Pauses(t), s.serve(t, outbox.OutboxEvents())
	pause := func(table, topic string) {
		t.Helper()
		if err := p.Pause(t.Context(), tables.Pause{Table: table, Topic: topic, Actor: "me", Reason: "because"}); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(paused bool, topics ...string) {
		t.Helper()
		got := r.lease(time.Minute)
		if got.Paused.Table != paused || !slices.Equal(got.Paused.Topics, topics) || len(got.Lanes) != outbox.Lanes {
			t.Errorf("paused %+v, want %t, %q", got.Paused, paused, topics)
		}
	}
	wants(false)
	pause("event_outbox", "")
	pause("crawl_outbox", "x")
	wants(false)
	pause("", "b.*")
	pause("outbox_events", "a")
	pause("outbox_events", "b.*")
	pause("outbox_events", "a")
	wants(false, "a", "b.*")
	pause("outbox_events", "")
	wants(true, "a", "b.*")
	there := tables.Pause{Destination: "mail", Actor: "me", Reason: "because"}
	if err := p.Pause(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	if got := r.lease(time.Minute).Paused.Destinations; !slices.Equal(got, []string{"mail"}) {
		t.Errorf("paused destinations %q, want mail", got)
	}
	if found, err := p.Resume(t.Context(), there); err != nil || !found {
		t.Errorf("resume a destination: %t, error %v", found, err)
	}
	all, err := p.Pauses(t.Context())
	if err != nil || len(all) != 6 || all[0].Table != "" || all[0].Topic != "b.*" || all[0].Reason != "because" ||
		time.Since(all[0].At).Abs() > time.Minute {
		t.Errorf("pauses %+v, error %v", all, err)
	}
	report, err := s.Browser(t, outbox.OutboxEvents()).Lanes(t.Context(), 1)
	if err != nil || len(report.Pauses) != 4 {
		t.Errorf("the lanes report %+v, error %v, want the 4 that concern the table", report.Pauses, err)
	}
	for _, c := range []struct {
		topic string
		found bool
	}{{"", true}, {"", false}, {"c", false}} {
		if found, err := p.Resume(t.Context(),
			tables.Pause{Table: "outbox_events", Topic: c.topic, Actor: "me"}); err != nil || found != c.found {
			t.Errorf("resume %q: %t, error %v, want %t", c.topic, found, err, c.found)
		}
	}
	wants(false, "a", "b.*")
	actions, _, err := s.letters(t).Actions(t.Context(), deadletter.ActionFilter{Action: "pause"})
	if err != nil || len(actions) != 8 || *actions[0].Reason != "because" || actions[0].Actor != "me" {
		t.Errorf("the record has %d pauses, error %v, want 8", len(actions), err)
	}
}

func relayObeysPauses(t *testing.T, s *storeSuite) {
	p, sink := s.Pauses(t), &recorder{}
	start(t, s.Table(t, outbox.OutboxEvents()), sink, outbox.RelayConfig{Workers: 2, BatchRecords: 10})
	change := func(pause bool, table, topic string) {
		t.Helper()
		err := p.Pause(t.Context(), tables.Pause{Table: table, Topic: topic, Actor: "me", Reason: "because"})
		if !pause {
			_, err = p.Resume(t.Context(), tables.Pause{Table: table, Topic: topic, Actor: "me"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const obeyed = 1500 * time.Millisecond // checks of the lease are half a second apart
	place := func() {
		for k := range 5 {
			for _, topic := range []string{"a", "b", "a"} {
				s.place(t, "outbox_events", topic, fmt.Sprint(k))
			}
		}
	}
	change(true, "", "b")
	time.Sleep(obeyed)
	place()
	sink.until(t, 5)
	time.Sleep(obeyed)
	if n := sink.count(); n != 5 {
		t.Fatalf("%d events arrived while b is paused, want the first of each key", n)
	}
	change(true, "outbox_events", "")
	change(false, "", "b")
	time.Sleep(obeyed)
	place()
	time.Sleep(obeyed / 3)
	if n := sink.count(); n != 5 {
		t.Fatalf("%d events arrived while the table is paused, want 5 still", n)
	}
	if n := s.count(t, "outbox_events",
		"status <> 'NEW' AND status <> 'SENT' OR retry_count > 0 OR next_retry_at IS NOT NULL"); n != 0 {
		t.Errorf("%d events were touched by a pause", n)
	}
	change(false, "outbox_events", "")
	sink.until(t, 30)
	orders := map[string]string{}
	for _, r := range sink.received {
		orders[r.Key] += r.Destination
	}
	for key, got := range orders {
		if got != "abaaba" {
			t.Errorf("key %s arrived in the order %s, want abaaba", key, got)
		}
	}
}
