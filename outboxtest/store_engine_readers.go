package outboxtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

// noReader is why a log keeps none of these promises.
const noReader = "it has many readers"

// group opens the events for a process of a consumer group; "" opens them for the sinks.
func (s *storeSuite) group(t *testing.T, name string) *server {
	t.Helper()
	layout := s.events
	layout.Reader = name
	return s.relay(t, layout)
}

// tryLease asks once, and returns the reader that the table has if it is another one.
func (r *server) tryLease() (lanes int, current string) {
	r.t.Helper()
	leased, err := r.Lease(r.t.Context(), outbox.LeaseRequest{Owner: r.owner, Name: "test", TTL: time.Minute})
	if other, ok := errors.AsType[*outbox.ReaderError](err); ok {
		return 0, other.Current
	}
	if err != nil {
		r.t.Error(err)
	}
	return len(leased.Lanes), ""
}

func recordsReader(t *testing.T, s *storeSuite) {
	if !s.events.KeepsState() {
		for _, name := range []string{"", "billing", "audit"} {
			if n, _ := s.group(t, name).tryLease(); n != outbox.LaneCount {
				t.Errorf("reader %q of a log got %d lanes", name, n)
			}
		}
		if n := s.Value(t, "SELECT count(*) FROM outbox_readers"); n != "0" {
			t.Errorf("%s readers of a log are recorded", n)
		}
		return
	}
	first, second := s.group(t, "billing"), s.group(t, "billing")
	first.lease(time.Minute)
	if got := second.lease(time.Minute); got.Share != outbox.LaneCount/2 {
		t.Errorf("the share of a second process of the group is %d lanes", got.Share)
	}
	first.release(first.lanes[:1])
	for _, name := range []string{"", "audit"} {
		if n, current := s.group(t, name).tryLease(); n != 0 || current != "group:billing" {
			t.Errorf("reader %q got %d lanes, and was told of reader %q", name, n, current)
		}
	}
	if n := s.Value(t, "SELECT count(*) FROM outbox_relays"); n != "2" {
		t.Errorf("%s processes are enrolled, want those of the group", n)
	}
	if n, _ := second.tryLease(); n != 1 {
		t.Errorf("the group's second process got %d lanes of one that is free", n)
	}
	layout := outbox.DeliveriesOf("outbox_events", "audit")
	if n, current := s.relay(t, layout).tryLease(); n != outbox.LaneCount {
		t.Errorf("a sink got %d lanes of its pending deliveries, and was told of reader %q", n, current)
	}
}

func refusesFormerReader(t *testing.T, s *storeSuite) {
	a := s.serve(t, outbox.OutboxEvents())
	s.commits(t, keyed("a", "a"))
	s.Exec(t, "UPDATE outbox_readers SET reader = 'group:billing'")
	before := s.Value(t, "SELECT max(expires_at) FROM outbox_lanes")
	if n, current := a.tryLease(); n != 0 || current != "group:billing" {
		t.Errorf("the former reader got %d lanes, and was told of reader %q", n, current)
	}
	past := time.Now().Add(-time.Second)
	for _, table := range []string{"outbox_lanes", "outbox_relays"} { // as after a pause that outlasts the lease
		s.Exec(t, "UPDATE "+table+" SET expires_at = ?1", past)
	}
	if n, current := a.tryLease(); n != 0 || current != "group:billing" {
		t.Errorf("after a pause the former reader got %d lanes, and was told of reader %q", n, current)
	}
	if n := s.Value(t, "SELECT count(*) FROM outbox_lanes WHERE expires_at >= ?1", time.Now()); n != "0" {
		t.Errorf("%s lanes were renewed; their leases ended at %s", n, before)
	}
	layout := outbox.OutboxEvents()
	layout.Reader = "billing"
	b := s.succeed(t, layout)
	b.only()
	b.epochs(2, b.lanes...)
}

func admitsOneReader(t *testing.T, s *storeSuite) {
	for round := range 10 {
		s.Exec(t, "DELETE FROM outbox_readers")
		s.Exec(t, "DELETE FROM outbox_relays")
		s.Exec(t, "DELETE FROM outbox_lanes")
		names := []string{"", "billing", "", "billing"}
		lanes, current := make([]int, len(names)), make([]string, len(names))
		var all sync.WaitGroup
		for i, name := range names {
			r := s.group(t, name)
			all.Go(func() { lanes[i], current[i] = r.tryLease() })
		}
		all.Wait()
		sinks, group := lanes[0]+lanes[2], lanes[1]+lanes[3]
		told := fmt.Sprintf("%q", current)
		if sinks+group != outbox.LaneCount || sinks*group != 0 {
			t.Fatalf("round %d: sinks hold %d lanes and the group %d; they were told %s", round, sinks, group, told)
		}
		refusals := `["" "sinks" "" "sinks"]`
		if group > 0 {
			refusals = `["group:billing" "" "group:billing" ""]`
		}
		if told != refusals {
			t.Fatalf("round %d: they were told %s, want %s", round, told, refusals)
		}
	}
}
