package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox"
)

// reach is a sink that a relay may be unable to reach. Pings say so, unless it is blind.
type reach struct {
	m           *memory
	down, blind atomic.Bool
	failures    atomic.Int32
}

func (s *reach) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	time.Sleep(time.Millisecond)
	if s.down.Load() {
		s.failures.Add(1)
		return failAll(batch, outbox.Unavailable(errors.New("no route to host")))
	}
	results := make([]outbox.Result, len(batch))
	for i, d := range batch {
		results[i] = s.m.receive(d)
	}
	return results
}

func (s *reach) Abilities() outbox.Abilities { return outbox.Abilities{Ping: s.ping} }

func (s *reach) ping(context.Context) error {
	if s.down.Load() && !s.blind.Load() {
		return errors.New("no route to host")
	}
	return nil
}

// reaching starts a relay on m whose sink is s, with the loops that a Relay runs beside it.
func reaching(t *testing.T, m *memory, s *reach) *tableRelay {
	t.Helper()
	r, err := relayOf(m, s, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	state := &sinkState{name: DefaultSink, sink: s, breaker: r.cfg.breaker}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{r.run, state.probe, func(ctx context.Context) error {
		return measure(ctx, serving{[]*tableRelay{r}, map[string]*sinkState{DefaultSink: state}})
	}} {
		running.Go(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

func (r *tableRelay) holds() int {
	r.keeper.mu.Lock()
	defer r.keeper.mu.Unlock()
	return len(r.keeper.lanes)
}

// A relay that alone cannot reach its sink leaves its lanes to one that can, does not come back
// before its sink does, and then shares the work again.
func TestRelayWithoutItsSinkYieldsItsLanes(t *testing.T) {
	t.Parallel()
	for _, blind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{}
			cut, fine := &reach{m: m}, &reach{m: m}
			cut.blind.Store(blind)
			a, b := reaching(t, m, cut), reaching(t, m, fine)
			time.Sleep(5 * time.Second)
			if a.holds() != 32 || b.holds() != 32 {
				t.Fatalf("the relays hold %d and %d lanes", a.holds(), b.holds())
			}
			var lanes []int16
			for lane := range int16(outbox.LaneCount) {
				lanes = append(lanes, lane)
			}
			write := func() { m.locked(func() { m.fill(lanes, 5) }) }
			undelivered := func() (n int) { m.locked(func() { n = len(m.records) }); return n }

			cut.down.Store(true)
			write()
			time.Sleep(15 * time.Second) // a lease, until health is looked at, and a check
			if a.holds() != 0 || b.holds() != 64 || undelivered() != 0 {
				t.Errorf("the relays hold %d and %d lanes, and %d events wait", a.holds(), b.holds(), undelivered())
			}
			failed, worst := cut.failures.Load(), time.Duration(0)
			for began := time.Now(); time.Since(began) < 10*time.Minute; {
				write()
				wrote := time.Now()
				for undelivered() > 0 && time.Since(wrote) < time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				worst = max(worst, time.Since(wrote))
				time.Sleep(time.Second)
			}
			if tries := cut.failures.Load() - failed; !blind && tries > 0 || blind && (tries == 0 || tries > 60) {
				t.Errorf("blind %t: the sink was tried %d times in 10 minutes", blind, tries)
			}
			if worst > 5*time.Second {
				t.Errorf("blind %t: an event waited %s", blind, worst)
			}

			fine.down.Store(true) // nobody can deliver: it does not matter who has the lanes
			write()
			time.Sleep(time.Minute)
			if undelivered() == 0 {
				t.Error("events were delivered to a sink that is down")
			}
			cut.down.Store(false)
			time.Sleep(30 * time.Second)
			if undelivered() != 0 || a.holds() != 64 {
				t.Errorf("blind %t: %d events wait, the relay whose sink is back holds %d lanes", blind, undelivered(), a.holds())
			}
			fine.down.Store(false)
			time.Sleep(2 * time.Minute)
			if a.holds() != 32 || b.holds() != 32 {
				t.Errorf("blind %t: at the end the relays hold %d and %d lanes", blind, a.holds(), b.holds())
			}
			m.locked(func() {
				if len(m.overtaken) > 0 || len(m.received) != len(m.known) {
					t.Errorf("overtaken: %v; %d received of %d", m.overtaken, len(m.received), len(m.known))
				}
			})
		})
	}
}
