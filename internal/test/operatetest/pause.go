package operatetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func pauseTests() []behaviour {
	return []behaviour{
		{name: "what is paused is listed, obeyed, resumed and on the record", run: pausesAndResumes},
		{name: "what hinders a relay is told with its lease, once, until it is gone", run: tellsTroubles},
	}
}

func pausesAndResumes(t *testing.T, s *suite) {
	p, store, owner := s.Pauses(t), s.Table(t, outbox.OutboxEvents()), tabletest.NewID(t)
	lease := func() outbox.Leased {
		t.Helper()
		leased, err := store.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return leased
	}
	pause := func(table, topic string) {
		t.Helper()
		err := p.Pause(t.Context(), operate.Pause{Table: table, Topic: topic, Actor: "me", Reason: "because"})
		if err != nil {
			t.Fatal(err)
		}
	}
	wants := func(paused bool, topics ...string) {
		t.Helper()
		got := lease()
		if got.Paused.Table != paused || !slices.Equal(got.Paused.Topics, topics) || len(got.Lanes) != outbox.LaneCount {
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
	there := operate.Pause{Destination: "mail", Actor: "me", Reason: "because"}
	if err := p.Pause(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	if got := lease().Paused.Destinations; !slices.Equal(got, []string{"mail"}) {
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
			operate.Pause{Table: "outbox_events", Topic: c.topic, Actor: "me"}); err != nil || found != c.found {
			t.Errorf("resume %q: %t, error %v, want %t", c.topic, found, err, c.found)
		}
	}
	wants(false, "a", "b.*")
	actions, _, err := s.letters(t).Actions(t.Context(), deadletter.ActionFilter{Action: "pause"})
	if err != nil || len(actions) != 8 || *actions[0].Reason != "because" || actions[0].Actor != "me" {
		t.Errorf("the record has %d pauses, error %v, want 8", len(actions), err)
	}
}

func tellsTroubles(t *testing.T, s *suite) {
	store, owner := s.Table(t, outbox.OutboxEvents()), tabletest.NewID(t)
	lease := func(health string) []operate.Trouble {
		t.Helper()
		_, err := store.Lease(t.Context(),
			outbox.LeaseRequest{Owner: owner, Name: "relay-1", TTL: time.Minute, Health: health})
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.Operators.Troubles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	version := func() string {
		return s.Value(t, "SELECT CAST(max(expires_at) AS text) FROM outbox_relays WHERE name = 'relay-1'")
	}
	if all := lease(""); len(all) != 0 {
		t.Errorf("a relay that is well tells %+v", all)
	}
	all := lease(`{"table": "no backlog", "sinks": {"b": "refused", "a": "gone"}}`)
	if len(all) != 1 || all[0].Relay != "relay-1" || all[0].Since == nil ||
		time.Since(*all[0].Since).Abs() > time.Minute ||
		strings.Join(all[0].Reasons(), "|") != "sink a: gone|sink b: refused|outbox_events: no backlog" ||
		!all[0].Concerns("outbox_events") || all[0].Concerns("event_outbox") {
		t.Fatalf("troubles %+v", all)
	}
	since, written := *all[0].Since, version()
	if lease(`{"table": "no backlog", "sinks": {"b": "refused", "a": "gone"}}`); version() != written {
		t.Error("what was told before is written again")
	}
	if all := lease(`{"table": "other"}`); len(all) != 1 || all[0].Why != "other" || !all[0].Since.Equal(since) {
		t.Errorf("it tells something else: %+v, want it since %s", all, since)
	}
	if all := lease(""); len(all) != 0 {
		t.Errorf("a relay that is well again tells %+v", all)
	}
}
