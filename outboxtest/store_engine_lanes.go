package outboxtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func laneTests() []storeTest {
	return []storeTest{
		{name: "the first relay holds all lanes, the second its half once the first has handed them over", run: sharesLanes},
		{name: "three relays share, and what one leaves the others take", run: sharesAmongThree},
		{name: "the lanes of a relay that vanished lapse, and their next holder counts a crash", run: takesLapsedLanes},
		{name: "a relay that asks often is told how long it still holds, and nothing is written", run: renewsWhenDue},
		{name: "a relay that is leaving keeps what it holds and takes nothing more", run: keepsLanesWhileLeaving},
		{name: "a relay without its sink yields its lanes to one that has its sinks", run: yieldsLanes},
		{name: "a relay's sinks and routes are recorded while it is enrolled", run: recordsServes},
		{name: "what is known of a suspect lane outlives its holder", run: remembersSuspects},
		{name: "a relay that gives a lane up has survived what it tried there", run: forgetsTrials},
		{name: "two tables of one database have lanes of their own", run: separatesTables},
		{name: "a table has one reader, whose processes share it, and a log has many", run: recordsReader},
		{name: "a reader that has lost the table renews and takes nothing", run: refusesFormerReader, notInLog: noReader},
		{name: "of two readers that start at the same moment one gets the table", run: admitsOneReader, notInLog: noReader},
		{name: "the backlog is counted up to a limit, with the age of its oldest event", run: countsBacklog,
			notInLog: noState},
	}
}

// epochs fails unless all lanes held are at this epoch.
func (r *server) epochs(want int64, lanes ...outbox.Lane) {
	r.t.Helper()
	for _, l := range lanes {
		if l.Epoch != want {
			r.t.Errorf("lane %d is at epoch %d, want %d", l.Number, l.Epoch, want)
		}
	}
}

func sharesLanes(t *testing.T, s *storeSuite) {
	a := s.serve(t, outbox.OutboxEvents())
	a.epochs(1, a.lanes...)
	b := s.relay(t, outbox.OutboxEvents())
	if got := b.lease(time.Minute); len(got.Lanes) != 0 || got.Share != 32 {
		t.Fatalf("the second relay got %d lanes, share %d; want none of the first's, and 32 to come", len(got.Lanes),
			got.Share)
	}
	got := a.lease(time.Minute)
	if len(got.Lanes) != 64 || got.Share != 32 {
		t.Fatalf("the first relay holds %d lanes, share %d; want 64 until it hands some over, and 32", len(got.Lanes),
			got.Share)
	}
	a.release(got.Lanes[32:])
	b.lease(time.Minute)
	a.lease(time.Minute)
	if len(a.lanes) != 32 || len(b.lanes) != 32 {
		t.Fatalf("they hold %d and %d lanes", len(a.lanes), len(b.lanes))
	}
	a.epochs(1, a.lanes...)
	b.epochs(2, b.lanes...)
	for i, l := range b.lanes {
		if l.Number != int16(32+i) || l.Crashes != 0 || l.Trial != (outbox.Trial{}) {
			t.Errorf("the second relay's lane %d is %+v", i, l)
		}
	}
}

func sharesAmongThree(t *testing.T, s *storeSuite) {
	relays := []*server{s.serve(t, outbox.OutboxEvents()), s.relay(t, outbox.OutboxEvents()),
		s.relay(t, outbox.OutboxEvents())}
	settle := func(want ...int) {
		t.Helper()
		for range 3 {
			for _, r := range relays {
				if got := r.lease(time.Minute); len(got.Lanes) > got.Share {
					r.release(got.Lanes[got.Share:])
				}
			}
		}
		taken := map[int16]bool{}
		for i, r := range relays {
			if got := r.lease(time.Minute); len(got.Lanes) != got.Share || got.Share != want[i] {
				t.Errorf("relay %d of %d holds %d lanes, share %d, want %d", i, len(relays), len(got.Lanes), got.Share, want[i])
			}
			for _, l := range r.lanes {
				if taken[l.Number] {
					t.Errorf("lane %d is held twice", l.Number)
				}
				taken[l.Number] = true
			}
		}
		if len(taken) != 64 {
			t.Errorf("%d lanes are held", len(taken))
		}
	}
	settle(22, 21, 21) // the ids rise in the order in which they were made
	gone := relays[1]
	if err := gone.Leave(t.Context(), gone.owner); err != nil {
		t.Fatal(err)
	}
	relays = []*server{relays[0], relays[2]}
	settle(32, 32)
}

func takesLapsedLanes(t *testing.T, s *storeSuite) {
	a := s.relay(t, outbox.OutboxEvents())
	if got := a.lease(200 * time.Millisecond); len(got.Lanes) != 64 || got.Remaining > 200*time.Millisecond {
		t.Fatalf("got %d lanes for %s", len(got.Lanes), got.Remaining)
	}
	before := a.lanes
	s.commits(t, keyed("a", "a"))
	b := s.relay(t, outbox.OutboxEvents())
	// A short lease, because a server that has just started may let no lanes lapse for the time of
	// the asked lease.
	for deadline := time.Now().Add(tier.Patience()); b.lease(time.Second).Share < 64 ||
		len(b.lanes) < 64; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the second relay has %d lanes", len(b.lanes))
		}
	}
	b.lease(time.Minute)
	b.epochs(2, b.lanes...)
	for _, l := range b.lanes {
		if l.Crashes != 1 {
			t.Errorf("lane %d was left by %d crashes", l.Number, l.Crashes)
		}
	}
	if got := a.settleHolding(before, delivered(b.only())...); got != (outbox.Settled{Lost: 1}) {
		t.Errorf("the one that vanished settles %+v", got)
	}
	if got := a.lease(time.Minute); len(got.Lanes) != 0 || got.Share != 32 {
		t.Errorf("back again it holds %d lanes, share %d", len(got.Lanes), got.Share)
	}
}

func renewsWhenDue(t *testing.T, s *storeSuite) {
	r := s.relay(t, outbox.OutboxEvents())
	first := r.lease(time.Hour).Remaining
	written := func() string {
		return s.Value(t,
			"SELECT (SELECT max(expires_at) FROM outbox_lanes) || '/' || (SELECT max(expires_at) FROM outbox_relays)")
	}
	before := written()
	time.Sleep(20 * time.Millisecond)
	second := r.lease(time.Hour).Remaining
	if first > time.Hour || first < 59*time.Minute || second >= first {
		t.Errorf("%s remain, and later %s", first, second)
	}
	if after := written(); after != before {
		t.Errorf("asking again wrote: %s, and before %s", after, before)
	}
	// Once a third is gone it is worth a write. An hour of which 30 minutes are left:
	for _, table := range []string{"outbox_lanes", "outbox_relays"} {
		s.Exec(t, "UPDATE "+table+" SET expires_at = ?1", time.Now().Add(30*time.Minute))
	}
	if got := r.lease(time.Hour); got.Remaining < 59*time.Minute || len(got.Lanes) != 64 {
		t.Errorf("with half of the time gone, %s remain of %d lanes", got.Remaining, len(got.Lanes))
	}
	r.epochs(1, r.lanes...)
	// A clock that was set back makes them last longer than they should.
	for _, table := range []string{"outbox_lanes", "outbox_relays"} {
		s.Exec(t, "UPDATE "+table+" SET expires_at = ?1", time.Now().Add(30*time.Hour))
	}
	if got := r.lease(time.Hour); got.Remaining > time.Hour {
		t.Errorf("%s remain of an hour", got.Remaining)
	}
	if got := s.Value(t, "SELECT count(*) FROM outbox_lanes WHERE expires_at > ?1",
		time.Now().Add(2*time.Hour)); got != "0" {
		t.Errorf("%s lanes are kept for hours", got)
	}
}

func keepsLanesWhileLeaving(t *testing.T, s *storeSuite) {
	a := s.serve(t, outbox.OutboxEvents())
	s.commits(t, keyed("a", "a"))
	leaving := outbox.LeaseRequest{Owner: a.owner, Name: "test", TTL: time.Minute, Leaving: true}
	if got := a.ask(leaving); len(got.Lanes) != 64 || got.Share != 0 {
		t.Errorf("it holds %d lanes, share %d", len(got.Lanes), got.Share)
	}
	b := s.relay(t, outbox.OutboxEvents())
	if got := b.lease(time.Minute); len(got.Lanes) != 0 || got.Share != 64 {
		t.Errorf("the other holds %d lanes, share %d", len(got.Lanes), got.Share)
	}
	a.settles(outbox.Settled{Delivered: 1}, delivered(a.only())...)
	a.release(a.lanes[:40])
	if got := a.ask(leaving); len(got.Lanes) != 24 || got.Share != 0 {
		t.Errorf("after handing 40 over it holds %d lanes, share %d", len(got.Lanes), got.Share)
	}
	if got := b.lease(time.Minute); len(got.Lanes) != 40 {
		t.Errorf("the other holds %d lanes", len(got.Lanes))
	}
}

func yieldsLanes(t *testing.T, s *storeSuite) {
	a, b := s.serve(t, outbox.OutboxEvents()), s.relay(t, outbox.OutboxEvents())
	const down, yields = `{"sinks": {"default": "gone"}}`, `{"sinks": {"default": "gone"}, "yields": true}`
	for _, step := range []struct {
		health, other string // of a and b
		share, others int
	}{
		{down, "", 32, 32},
		{yields, `{"slow": {"default": "a batch takes 1s or longer"}}`, 0, 64},
		{yields, down, 32, 32}, // neither can deliver
		{yields, `{"table": "no batch has made progress"}`, 32, 32},
		{yields, yields, 32, 32},
		{"", yields, 64, 0},
		{"", "", 32, 32},
	} {
		a.ask(outbox.LeaseRequest{Owner: a.owner, Name: "test", TTL: time.Minute, Health: step.health})
		others := b.ask(outbox.LeaseRequest{Owner: b.owner, Name: "test", TTL: time.Minute, Health: step.other}).Share
		got := a.ask(outbox.LeaseRequest{Owner: a.owner, Name: "test", TTL: time.Minute, Health: step.health})
		if got.Share != step.share || others != step.others {
			t.Errorf("%s and %s: shares %d and %d, want %d and %d", step.health, step.other, got.Share, others, step.share,
				step.others)
		}
		if a.release(got.Lanes[min(got.Share, len(got.Lanes)):]); step.share == 0 && len(b.lease(time.Minute).Lanes) != 64 {
			t.Errorf("the other relay does not get all lanes")
		}
	}
}

func recordsServes(t *testing.T, s *storeSuite) {
	a := s.relay(t, outbox.OutboxEvents())
	request := outbox.LeaseRequest{Owner: a.owner, Name: "test", TTL: time.Minute, Serves: "all events to a\nsink"}
	a.ask(request)
	request.TTL, request.Health = time.Hour, `{"table": "slow"}` // a renewal
	a.ask(request)
	if got := s.Value(t, "SELECT serves FROM outbox_relays"); got != request.Serves {
		t.Errorf("recorded %q, want %q", got, request.Serves)
	}
}

func remembersSuspects(t *testing.T, s *storeSuite) {
	a := s.serve(t, outbox.OutboxEvents())
	event := tabletest.NewID(t)
	marked := []outbox.Lane{a.lanes[3], a.lanes[5], a.lanes[7]}
	marked[0].Crashes, marked[0].Trial = 2, outbox.Trial{Size: 50}
	marked[1].Crashes, marked[1].Trial = 3, outbox.Trial{Size: 1, Event: event}
	marked[2].Crashes, marked[2].Epoch = 9, 77 // not as it is held
	if err := a.Mark(t.Context(), a.owner, marked); err != nil {
		t.Fatal(err)
	}
	if err := a.Mark(t.Context(), tabletest.NewID(t), []outbox.Lane{{Number: 9, Epoch: 1, Crashes: 5}}); err != nil {
		t.Fatal(err)
	}
	want := func(r *server, more int) {
		t.Helper()
		for i, l := range r.lanes {
			want := outbox.Lane{Number: int16(i), Epoch: l.Epoch, Crashes: more}
			switch i {
			case 3:
				want.Crashes, want.Trial = 2+more, marked[0].Trial
			case 5:
				want.Crashes, want.Trial = 3+more, marked[1].Trial
			}
			if l != want {
				t.Errorf("lane %d is %+v, want %+v", i, l, want)
			}
		}
	}
	a.lease(time.Minute)
	want(a, 0)
	s.Exec(t, "UPDATE outbox_lanes SET expires_at = ?1", time.Now().Add(-time.Second)) // a vanishes
	s.Exec(t, "UPDATE outbox_relays SET expires_at = ?1", time.Now().Add(-time.Second))
	want(s.succeed(t, outbox.OutboxEvents()), 1)
}

func forgetsTrials(t *testing.T, s *storeSuite) {
	a := s.serve(t, outbox.OutboxEvents())
	a.lanes[3].Crashes, a.lanes[3].Trial = 2, outbox.Trial{Size: 1, Event: tabletest.NewID(t)}
	a.lanes[4].Crashes, a.lanes[4].Trial = 2, outbox.Trial{Size: 9}
	if err := a.Mark(t.Context(), a.owner, a.lanes[3:5]); err != nil {
		t.Fatal(err)
	}
	a.release(a.lanes[3:4])
	if err := a.Leave(t.Context(), a.owner); err != nil {
		t.Fatal(err)
	}
	b := s.serve(t, outbox.OutboxEvents())
	for _, l := range b.lanes[3:5] {
		if l.Crashes != 2 || l.Trial != (outbox.Trial{}) || l.Epoch != 2 {
			t.Errorf("lane %d is %+v", l.Number, l)
		}
	}
}

func separatesTables(t *testing.T, s *storeSuite) {
	a, b := s.serve(t, outbox.OutboxEvents()), s.serve(t, outbox.EventOutbox())
	if err := a.Leave(t.Context(), a.owner); err != nil {
		t.Fatal(err)
	}
	if got := b.lease(time.Minute); len(got.Lanes) != 64 || got.Share != 64 {
		t.Errorf("after another table's relay has left: %d lanes, share %d", len(got.Lanes), got.Share)
	}
}

func countsBacklog(t *testing.T, s *storeSuite) {
	layout := outbox.OutboxEvents()
	r := s.serve(t, layout)
	check := func(limit, count int, oldest time.Duration) {
		t.Helper()
		b, err := r.Backlog(t.Context(), limit)
		if err != nil || b.Count != count || b.Oldest < oldest || b.Oldest > oldest+time.Minute {
			t.Errorf("limit %d: got %d, the oldest of %s, error %v; want %d and %s", limit, b.Count, b.Oldest, err, count,
				oldest)
		}
	}
	check(100, 0, 0)
	s.commits(t, numbered(2, "a", "b", "c")...)
	s.Age(t, layout, time.Hour)
	s.commits(t, keyed("new", "a"))
	check(100, 7, time.Hour)
	check(5, 5, time.Hour)
	r.settle(retried(r.claim()[0])) // what waits for a retry is still to be delivered
	check(100, 7, time.Hour)
	s.Age(t, layout, 2*time.Hour)
	r.settle(delivered(r.claim()[:6]...)...)
	check(100, 1, 2*time.Hour)
	s.rows.MakeApp(t, "acme") // its table keeps no time but the ids'
	s.rows.Place(t, "event_outbox", "x", "a")
	other := s.serve(t, outbox.EventOutbox())
	if b, err := other.Backlog(t.Context(), 10); err != nil || b.Count != 1 || b.Oldest > time.Minute {
		t.Errorf("event_outbox: got %s, error %v", fmt.Sprint(b), err)
	}
}
