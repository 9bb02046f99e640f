package outbox

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// laneTable is the lanes of a memory, as lease_take.sql and the statements beside it keep them.
type laneTable struct {
	lanes  [Lanes]laneRow
	relays map[uuid.UUID]time.Time // until when each is alive
}

type laneRow struct {
	Lane
	owner   uuid.UUID
	expires time.Time
}

func (m *memory) Lease(_ context.Context, request LeaseRequest) (Leased, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaseErr != nil {
		if err := m.leaseErr(); err != nil {
			return Leased{}, err
		}
	}
	if m.relays == nil {
		m.relays = map[uuid.UUID]time.Time{}
	}
	now, renewable := time.Now(), time.Now().Add(request.TTL*2/3)
	if m.relays[request.Owner].Before(renewable) {
		m.relays[request.Owner] = now.Add(request.TTL)
	}
	alive, before, kept := 0, 0, 0
	for owner, expires := range m.relays {
		if expires.After(now) {
			alive++
			if owner.String() < request.Owner.String() {
				before++
			}
		}
	}
	leased := Leased{Share: Lanes / alive, Remaining: request.TTL}
	if before < Lanes%alive {
		leased.Share++
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
func (m *memory) holds(owner uuid.UUID, l Lane) bool {
	row := &m.lanes[l.Number]
	return row.owner == owner && row.Epoch == l.Epoch
}

func (m *memory) Release(_ context.Context, owner uuid.UUID, lanes []Lane) error {
	m.mu.Lock()
	defer m.mu.Unlock()
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
	delete(m.relays, owner)
	for i := range m.lanes {
		if l := &m.lanes[i]; l.owner == owner {
			l.owner, l.expires = uuid.Nil, time.Time{}
		}
	}
	return nil
}

func (m *memory) Mark(_ context.Context, owner uuid.UUID, lanes []Lane) error {
	m.mu.Lock()
	defer m.mu.Unlock()
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
		r, err := NewRelay(nil, nil, RelayConfig{Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		var all []Lane
		for n := range int16(Lanes) {
			all = append(all, Lane{Number: n})
		}
		r.keeper.lanes, r.keeper.share, r.keeper.until = all, Lanes, time.Now().Add(time.Minute)
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
		if len(holder) != Lanes {
			t.Errorf("%d workers serve %d lanes, want %d", workers, len(holder), Lanes)
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

// A worker whose share of the lanes is empty stands by: that is no reason to call the relay unready.
func TestWorkerWithoutLanesIsHealthy(t *testing.T) {
	m := &memory{}
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRelay(m, m, RelayConfig{Workers: Lanes + 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(time.Minute)
		if ok, why := r.Health().Ready(time.Now(), 10*time.Second, 12*time.Second); !ok {
			t.Error(why)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Two renewals in a row that fail at once, as when somebody terminates the relay's sessions, do not end the lease.
func TestFailedRenewalIsRepeatedSoon(t *testing.T) {
	requests := 0
	m := &memory{leaseErr: func() error {
		if requests++; requests == 2 || requests == 3 {
			return errors.New("terminating connection")
		}
		return nil
	}}
	inBubble(t, m, RelayConfig{}, func(t *testing.T, _ *Relay) {
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
		r, stop := start(t, m, RelayConfig{})
		pass(time.Minute)
		if ok, why := r.Health().Ready(time.Now(), 10*time.Second, 12*time.Second); ok || !strings.Contains(why, "permission denied for table outbox_lanes") {
			t.Errorf("ready %t, %q", ok, why)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
