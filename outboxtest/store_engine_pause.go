package outboxtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/relay"
)

func pauseTests() []storeTest {
	return []storeTest{
		{name: "a claim leaves out paused topics, and what is behind them in their keys", run: claimsUnpaused,
			notInLog: noPauses},
		{name: "a paused destination is found in events' own lists", run: claimsUnpausedLists, notInLog: noPauses},
		{name: "a lease tells what is paused of its table", run: leaseTellsPauses},
		{name: "a running relay obeys a pause and its end, and keeps the order", run: relayObeysPauses,
			notInLog: noSingle},
	}
}

func claimsUnpaused(t *testing.T, s *storeSuite) {
	s.rows.MakeRun(t)
	servers := map[string]*server{}
	template, err := outbox.ParseTemplate("to {topic} of {source}")
	if err != nil {
		t.Fatal(err)
	}
	for _, layout := range tabletest.Layouts() {
		r := s.serve(t, layout)
		servers[layout.Table] = r
		// a: goes, waits, waits behind that. b: waits whole. c: goes whole. A run has one key: what
		// is behind its first paused event waits.
		for _, e := range [][2]string{{"order.placed", "a"}, {"50%_x", "b"}, {"order.paid", "c"}, {"50%_x", "a"},
			{"order.packed", "a"}, {"order.placed", "b"}, {"50ax", "c"}} {
			s.rows.Place(t, layout.Table, e[0], e[1])
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
		s.rows.Place(t, "outbox_events", "paused", "")
	}
	s.Exec(t, "UPDATE outbox_events SET aggregate_id = NULL WHERE event_topic = 'paused'")
	last := s.rows.Place(t, "outbox_events", "last", "z")
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
		s.rows.Place(t, "outbox_events", "topic "+key, key)
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

// pause inserts one, by plain SQL; an empty name is every table, topic or destination.
func (s *storeSuite) pause(t *testing.T, table, topic, destination string) {
	t.Helper()
	s.Exec(t, "INSERT INTO outbox_pauses (table_name, topic, destination, reason, actor) "+
		"VALUES (?1, ?2, ?3, 'because', 'me')", table, topic, destination)
}

func (s *storeSuite) resume(t *testing.T, table, topic, destination string) {
	t.Helper()
	s.Exec(t, "DELETE FROM outbox_pauses WHERE table_name = ?1 AND topic = ?2 AND destination = ?3", table, topic,
		destination)
}

func leaseTellsPauses(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	wants := func(paused bool, topics ...string) {
		t.Helper()
		got := r.lease(time.Minute)
		if got.Paused.Table != paused || !slices.Equal(got.Paused.Topics, topics) || len(got.Lanes) != outbox.LaneCount {
			t.Errorf("paused %+v, want %t, %q", got.Paused, paused, topics)
		}
	}
	wants(false)
	s.pause(t, "event_outbox", "", "")
	s.pause(t, "crawl_outbox", "x", "")
	wants(false)
	s.pause(t, "", "b.*", "")
	s.pause(t, s.events.Table, "a", "")
	s.pause(t, s.events.Table, "b.*", "")
	wants(false, "a", "b.*")
	s.pause(t, s.events.Table, "", "")
	wants(true, "a", "b.*")
	s.pause(t, "", "", "mail")
	if got := r.lease(time.Minute).Paused.Destinations; !slices.Equal(got, []string{"mail"}) {
		t.Errorf("paused destinations %q, want mail", got)
	}
	s.resume(t, "", "", "mail")
	s.resume(t, s.events.Table, "", "")
	wants(false, "a", "b.*")
}

func relayObeysPauses(t *testing.T, s *storeSuite) {
	sink := &recorder{}
	start(t, s.Table(t, outbox.OutboxEvents()), sink, relay.Config{Workers: 2, BatchRecords: 10})
	const obeyed = 1500 * time.Millisecond // checks of the lease are half a second apart
	place := func() {
		for k := range 5 {
			for _, topic := range []string{"a", "b", "a"} {
				s.rows.Place(t, "outbox_events", topic, fmt.Sprint(k))
			}
		}
	}
	s.pause(t, "", "b", "")
	time.Sleep(obeyed)
	place()
	sink.until(t, 5)
	time.Sleep(obeyed)
	if n := sink.count(); n != 5 {
		t.Fatalf("%d events arrived while b is paused, want the first of each key", n)
	}
	s.pause(t, s.events.Table, "", "")
	s.resume(t, "", "b", "")
	time.Sleep(obeyed)
	place()
	time.Sleep(obeyed / 3)
	if n := sink.count(); n != 5 {
		t.Fatalf("%d events arrived while the table is paused, want 5 still", n)
	}
	if n := s.rows.Count(t, "outbox_events",
		"status <> 'NEW' AND status <> 'SENT' OR retry_count > 0 OR next_retry_at IS NOT NULL"); n != 0 {
		t.Errorf("%d events were touched by a pause", n)
	}
	s.resume(t, s.events.Table, "", "")
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
