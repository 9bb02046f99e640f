package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// laneTable is the lanes of a memory, as lease_take.sql and the statements beside it keep them.
type laneTable struct {
	lanes  [outbox.LaneCount]laneRow
	relays map[uuid.UUID]time.Time // until when each is alive
	health map[uuid.UUID]string    // LeaseRequest.Health of each
	paused outbox.Paused           // by an operator
	obeys  outbox.Paused           // LeaseRequest.Paused of the last request

	releaseErr func() error // of Release, and of Leave
}

type laneRow struct {
	outbox.Lane
	owner   uuid.UUID
	expires time.Time
}

func (m *memory) Lease(_ context.Context, request outbox.LeaseRequest) (outbox.Leased, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaseErr != nil {
		if err := m.leaseErr(); err != nil {
			return outbox.Leased{}, err
		}
	}
	if m.relays == nil {
		m.relays, m.health = map[uuid.UUID]time.Time{}, map[uuid.UUID]string{}
	}
	m.health[request.Owner], m.obeys = request.Health, request.Paused
	now, renewable := time.Now(), time.Now().Add(request.TTL*2/3)
	if request.Leaving {
		delete(m.relays, request.Owner)
	} else if m.relays[request.Owner].Before(renewable) {
		m.relays[request.Owner] = now.Add(request.TTL)
	}
	alive, before, kept, available := 0, 0, 0, false
	for owner, expires := range m.relays {
		available = available || expires.After(now) && !strings.Contains(m.health[owner], `"sinks"`)
	}
	yields := func(owner uuid.UUID) bool { return available && strings.Contains(m.health[owner], `"yields":true`) }
	for owner, expires := range m.relays {
		if expires.After(now) && !yields(owner) {
			alive++
			if owner.String() < request.Owner.String() {
				before++
			}
		}
	}
	leased := outbox.Leased{Remaining: request.TTL, Paused: m.paused}
	if !request.Leaving && !yields(request.Owner) {
		leased.Share = outbox.LaneCount / alive
		if before < outbox.LaneCount%alive {
			leased.Share++
		}
	}
	for _, l := range m.lanes {
		if l.owner == request.Owner {
			kept++
		}
	}
	for i := range m.lanes {
		l := &m.lanes[i]
		l.Number = int16(i)
		switch mine := l.owner == request.Owner; {
		case mine && l.expires.After(renewable):
		case mine:
			l.expires = now.Add(request.TTL)
		case !l.expires.After(now) && kept < leased.Share:
			if l.owner != uuid.Nil {
				l.Crashes++
			}
			l.owner, l.expires = request.Owner, now.Add(request.TTL)
			l.Epoch++
			kept++
		}
		if l.owner == request.Owner {
			leased.Lanes = append(leased.Lanes, l.Lane)
			leased.Remaining = min(leased.Remaining, l.expires.Sub(now))
		}
	}
	return leased, nil
}

// holds tells whether owner has held l since it was given it.
func (m *memory) holds(owner uuid.UUID, l outbox.Lane) bool {
	row := &m.lanes[l.Number]
	return row.owner == owner && row.Epoch == l.Epoch
}

func (m *memory) Release(_ context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.releaseErr != nil {
		if err := m.releaseErr(); err != nil {
			return err
		}
	}
	for _, l := range lanes {
		if m.holds(owner, l) {
			m.lanes[l.Number].owner, m.lanes[l.Number].expires = uuid.Nil, time.Time{}
		}
	}
	return nil
}

func (m *memory) Leave(_ context.Context, owner uuid.UUID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left++
	if m.releaseErr != nil {
		if err := m.releaseErr(); err != nil {
			return err
		}
	}
	delete(m.relays, owner)
	for i := range m.lanes {
		if l := &m.lanes[i]; l.owner == owner {
			l.owner, l.expires = uuid.Nil, time.Time{}
		}
	}
	return nil
}

func (m *memory) Mark(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, l := range lanes {
		if m.holds(owner, l) {
			m.lanes[l.Number].Crashes, m.lanes[l.Number].Trial = l.Crashes, l.Trial
		}
	}
	return nil
}

// A lane falls to one worker and always the same: that is what keeps a key's order among workers.
func TestWorkersShareTheLanes(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 3, 64, 100} {
		r, err := relayOf(nil, nil, Config{Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		var all []outbox.Lane
		for n := range int16(outbox.LaneCount) {
			all = append(all, outbox.Lane{Number: n})
		}
		r.keeper.lanes, r.keeper.share, r.keeper.until = all, outbox.LaneCount, time.Now().Add(time.Minute)
		holder := map[int16]int{}
		for n := range workers {
			lanes, _, ok := r.keeper.take(n)
			if ok != (len(lanes) > 0) {
				t.Errorf("worker %d of %d: %d lanes, ok %t", n, workers, len(lanes), ok)
			}
			for _, l := range lanes {
				if other, taken := holder[l.Number]; taken {
					t.Errorf("lane %d falls to workers %d and %d of %d", l.Number, other, n, workers)
				}
				holder[l.Number] = n
			}
		}
		if len(holder) != outbox.LaneCount {
			t.Errorf("%d workers serve %d lanes, want %d", workers, len(holder), outbox.LaneCount)
		}
		r.keeper.share = 1 // the others are to be handed over, and not used again before
		for n := range workers {
			if lanes, _, _ := r.keeper.take(n); n > 0 && len(lanes) > 0 || n == 0 && len(lanes) != 1 {
				t.Errorf("worker %d of %d: %d lanes of a share of one", n, workers, len(lanes))
			}
		}
		r.keeper.lanes = all[:1]
		if _, _, ok := r.keeper.take(0); !ok {
			t.Error("the worker of lane 0 does not serve it")
		}
		r.keeper.until = time.Now().Add(r.cfg.LeaseMargin / 2)
		if _, _, ok := r.keeper.take(0); ok {
			t.Error("lanes are served in the margin before their lease ends")
		}
	}
}

// The database counts a lease from a moment between the request and its answer. A relay that
// counted from the answer would publish after another relay has taken over its lanes.
func TestLeaseCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{leaseErr: func() error { time.Sleep(2 * time.Second); return nil }}
		r, err := relayOf(m, m, Config{Workers: 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		if err := r.keeper.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, until, ok := r.keeper.take(0)
		if got, most := until.Sub(asked), r.cfg.LeaseTTL-r.cfg.LeaseMargin; !ok || got > most {
			t.Errorf("lanes held: %t; publishing may begin until %s after the request, want at most %s", ok, got, most)
		}
		if r.keeper.renewedAfter(asked) {
			t.Error("the renewal counts as begun after its request was sent")
		}
	})
}

// timeApart returns a time that is monotonic from now on the monotonic clock and wall from now on
// the wall clock. Package time moves both clocks of a Time alike, so timeApart changes the seconds
// of the wall clock, which are the bits 30 to 62 of the first word.
func timeApart(t *testing.T, monotonic, wall time.Duration) time.Time {
	t.Helper()
	now := time.Now()
	at := now.Add(monotonic)
	*(*uint64)(unsafe.Pointer(&at)) += uint64((wall-monotonic)/time.Second) << 30
	if at.Sub(now) != monotonic || at.Round(0).Sub(now.Round(0)) != wall {
		t.Fatalf("the layout of time.Time has changed: %s is not %s and %s from now", at, monotonic, wall)
	}
	return at
}

// The monotonic clock stands still while a machine sleeps, and the wall clock can be set back. A
// lease is over when either of them says so. Fake time has no monotonic clock, so this test runs in
// real time.
func TestLeaseIsOverByEitherClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		monotonic, wall time.Duration // of the lease's end, from now
		over            bool
	}{
		{"both clocks before the end", time.Hour, time.Hour, false},
		{"the machine slept", time.Hour, -time.Hour, true},
		{"the wall clock was set back", -time.Hour, time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := relayOf(nil, nil, Config{Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			lanes, until := []outbox.Lane{{Number: 1}}, timeApart(t, tt.monotonic, tt.wall)
			r.keeper.lanes, r.keeper.share, r.keeper.until = lanes, 1, until
			if _, _, ok := r.keeper.take(0); ok == tt.over {
				t.Errorf("a worker gets lanes: %t", ok)
			}
			if got := r.workers[0].lapsed(&turn{lanes: lanes, until: until}); got != tt.over {
				t.Errorf("a claimed batch may not be published: %t, want %t", got, tt.over)
			}
			if got := r.workers[0].mustEnd(t.Context(), &turn{pass: new(ticket), until: until}); got != tt.over {
				t.Errorf("the next batch of the claim may not be published: %t, want %t", got, tt.over)
			}
			c := new(call)
			c.lanes.Store(&lanes)
			if ctx := r.keeper.hold(t.Context(), c, until, time.Now().Add(3*time.Second)); tt.over {
				if <-ctx.Done(); errors.Is(ctx.Err(), context.DeadlineExceeded) {
					t.Error("the publish in flight continues until its own deadline")
				}
			}
			c.end()
		})
	}
}

// A worker whose share of the lanes is empty stands by: that is no reason to call the relay
// unready.
func TestWorkerWithoutLanesIsHealthy(t *testing.T) {
	m := &memory{}
	synctest.Test(t, func(t *testing.T) {
		r, err := relayOf(m, m, Config{Workers: outbox.LaneCount + 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.run(ctx) }()
		time.Sleep(time.Minute)
		if ok, why := ready(r); !ok {
			t.Error(why)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Two renewals in a row that fail at once, as when somebody terminates the relay's sessions, do not
// end the lease.
func TestFailedRenewalIsRepeatedSoon(t *testing.T) {
	requests := 0
	m := &memory{leaseErr: func() error {
		if requests++; requests == 2 || requests == 3 {
			return errors.New("terminating connection")
		}
		return nil
	}}
	inBubble(t, m, Config{}, func(t *testing.T, _ *tableRelay) {
		pass(20 * time.Second)
		m.locked(func() {
			if requests < 5 {
				t.Fatalf("%d requests, the failures were not met", requests)
			}
			for i := 1; i < len(m.claims); i++ {
				if gap := m.claims[i] - m.claims[i-1]; gap > time.Second/4 {
					t.Errorf("nothing was claimed from %s on for %s", m.claims[i-1], gap)
				}
			}
		})
	})
}

// A relay that never got a lane is not ready, and says why.
func TestHealthNamesWhyLeasesAreNotRenewed(t *testing.T) {
	m := &memory{leaseErr: func() error { return errors.New("permission denied for table outbox_lanes") }}
	synctest.Test(t, func(t *testing.T) {
		r, stop := start(t, m, Config{})
		pass(time.Minute)
		if ok, why := ready(r); ok ||
			!strings.Contains(why, "permission denied for table outbox_lanes") {
			t.Errorf("ready %t, %q", ok, why)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// fleet is some relays on one memory that has work for each of its lanes all the time.
func fleet(t *testing.T, body func(t *testing.T, m *memory, join func(*process) *process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.started = time.Now()
		var all []*process
		body(t, m, func(p *process) *process {
			if p == nil {
				p = m.process(t, Config{Workers: 2}, nil)
			}
			all = append(all, p)
			return p
		})
		for _, p := range all {
			p.bury()
		}
		synctest.Wait()
		if len(m.clashes) > 0 {
			t.Errorf("%d times two relays published one lane: %s", len(m.clashes), m.clashes[0])
		}
		if len(m.overtaken) > 0 {
			t.Errorf("%d overtaken: %s", len(m.overtaken), m.overtaken[0])
		}
	})
}

// produce writes a row to each lane every 50 ms for d.
func (m *memory) produce(d time.Duration) (written int) {
	for began := time.Now(); time.Since(began) < d; time.Sleep(50 * time.Millisecond) {
		m.locked(func() {
			for lane := range int16(outbox.LaneCount) {
				m.records = append(
					m.records,
					&outbox.Record{Event: outbox.Event{ID: uuid.New(), Topic: "t"}, Lane: lane, OrderKey: int64(lane),
						Keyed:    true,
						Position: time.Since(m.started).Milliseconds() + 1},
				)
				written++
			}
		})
	}
	return written
}

// held counts the lanes of each of some relays.
func (m *memory) held(relays ...*process) (lanes []int) {
	m.locked(func() {
		for _, p := range relays {
			n := 0
			for _, l := range m.lanes {
				if l.owner == p.relay.owner {
					n++
				}
			}
			lanes = append(lanes, n)
		}
	})
	return lanes
}

// Relays that join, leave and vanish get and give their share within the time to live of a lease,
// and no lane is ever published by two.
func TestRelaysShareTheLanes(t *testing.T) {
	t.Parallel()
	fleet(t, func(t *testing.T, m *memory, join func(*process) *process) {
		written := 0
		wants := func(after time.Duration, what string, relays []*process, want ...int) {
			t.Helper()
			written += m.produce(after)
			got := m.held(relays...)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s after %s: %v lanes, want %v", what, after, got, want)
			}
		}
		a := join(nil)
		wants(time.Second, "alone", []*process{a}, 64)
		b := join(nil)
		wants(2*time.Second, "one has joined", []*process{a, b}, 32, 32)
		c := join(nil)
		wants(2*time.Second, "another has joined", []*process{a, b, c}, 21, 21, 22)
		if err := b.end(); err != nil {
			t.Error(err)
		}
		wants(time.Second, "one has left", []*process{a, c}, 32, 32)
		a.die()
		wants(11*time.Second, "one has vanished", []*process{c}, 64)
		d := join(nil)
		c.freeze(30 * time.Second)
		wants(11*time.Second, "one stands still", []*process{d}, 64)
		wants(25*time.Second, "it goes on", []*process{c, d}, 32, 32)
		pass(time.Second)
		m.locked(func() {
			if len(m.received) != written {
				t.Errorf("%d events arrived, want %d", len(m.received), written)
			}
			for i, l := range m.lanes {
				if l.Crashes != 0 {
					t.Errorf("lane %d still counts %d crashes", i, l.Crashes)
				}
			}
		})
	})
}

// What a worker is publishing when another relay joins stays where it is, however long it takes;
// what its neighbour holds too much is handed over meanwhile.
func TestHandOverWaitsForTheTurnInFlight(t *testing.T) {
	t.Parallel()
	fleet(t, func(t *testing.T, m *memory, join func(*process) *process) {
		m.publishHook = func(_ context.Context, batch []outbox.Delivery) []outbox.Result {
			if batch[0].Lane%2 == 0 && time.Since(m.started) < 2*time.Second { // the worker of the even lanes
				time.Sleep(4 * time.Second)
			}
			return nil
		}
		written := m.produce(time.Second)
		a := join(nil)
		pass(100 * time.Millisecond)
		b := join(nil)
		written += m.produce(1500 * time.Millisecond)
		if got := m.held(a, b); got[0] != 48 || got[1] != 16 {
			t.Errorf("%v lanes in the middle of a publish, want 48 and 16", got)
		}
		written += m.produce(4 * time.Second)
		if got := m.held(a, b); got[0] != 32 || got[1] != 32 {
			t.Errorf("%v lanes after it, want 32 each", got)
		}
		pass(time.Second)
		if len(m.received) != written {
			t.Errorf("%d events arrived, want %d", len(m.received), written)
		}
	})
}

// However much a claim has brought to a slow sink, and though the lease is renewed meanwhile, the
// turn ends with the lease that it began with: a relay that joins waits for a batch more, not for
// all of it.
func TestTurnEndsForAnothersShare(t *testing.T) {
	t.Parallel()
	fleet(t, func(t *testing.T, m *memory, join func(*process) *process) {
		m.publishHook = func(context.Context, []outbox.Delivery) []outbox.Result {
			time.Sleep(4 * time.Second)
			return nil
		}
		m.produce(time.Second)
		// 200 a claim: 16 s.
		a := join(m.process(t, Config{Workers: 2, BatchRecords: 50, LeaseTTL: 10 * time.Second}, nil))
		pass(100 * time.Millisecond)
		b := join(nil)
		pass(11 * time.Second)
		if got := m.held(a, b); got[0] != 64 {
			t.Errorf("%v lanes in the turn, want 64 and none", got)
		}
		pass(2 * time.Second)
		if got := m.held(a, b); got[0] != 32 || got[1] != 32 {
			t.Errorf("%v lanes after it, want 32 each", got)
		}
	})
}

// A relay that was told to stop, and waits for a publish, gives up at once what it is not using,
// and takes nothing that others give up.
func TestStoppingRelayKeepsOnlyWhatIsInFlight(t *testing.T) {
	t.Parallel()
	fleet(t, func(t *testing.T, m *memory, join func(*process) *process) {
		m.publishHook = func(_ context.Context, batch []outbox.Delivery) []outbox.Result {
			if batch[0].Lane%2 == 0 && time.Since(m.started) < 2*time.Second { // the worker of the even lanes
				time.Sleep(8 * time.Second)
			}
			return nil
		}
		written := m.produce(time.Second)
		a := join(nil)
		pass(100 * time.Millisecond)
		stopped := make(chan error, 1)
		go func() { stopped <- a.end() }()
		b, c := join(nil), join(nil)
		written += m.produce(1500 * time.Millisecond)
		if got := m.held(a, b, c); got[0] != 32 || got[1]+got[2] != 32 {
			t.Errorf("%v lanes while the first is stopping, want it to hold 32", got)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
		written += m.produce(time.Second)
		if got := m.held(a, b); got[0] != 32 || got[1] != 32 {
			t.Errorf("%v lanes after another has left, want 32 each", got)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		written += m.produce(time.Second)
		if got := m.held(a, b); got[0] != 0 || got[1] != outbox.LaneCount {
			t.Errorf("%v lanes in the end, want all with the second", got)
		}
		pass(time.Second)
		if len(m.received) != written {
			t.Errorf("%d events arrived, want %d", len(m.received), written)
		}
	})
}

// A relay that comes and goes while lanes are being handed over, and requests that fail meanwhile,
// cost nothing.
func TestShareChangesBackDuringHandOver(t *testing.T) {
	t.Parallel()
	fleet(t, func(t *testing.T, m *memory, join func(*process) *process) {
		fails := 0
		m.leaseErr = func() error {
			if fails++; fails%5 == 0 {
				return errors.New("terminating connection")
			}
			return nil
		}
		m.releaseErr = func() error {
			if fails++; fails%2 == 0 {
				return errors.New("terminating connection")
			}
			return nil
		}
		a := join(nil)
		written := m.produce(time.Second)
		for i := range 15 {
			b := join(m.process(t, Config{Workers: 3}, nil))
			written += m.produce(time.Duration(i*97) * time.Millisecond)
			_ = b.end()
		}
		written += m.produce(12 * time.Second)
		if got := m.held(a); got[0] != outbox.LaneCount {
			t.Errorf("%v lanes in the end, want all", got)
		}
		pass(time.Second)
		if len(m.received) != written {
			t.Errorf("%d events arrived, want %d", len(m.received), written)
		}
	})
}
