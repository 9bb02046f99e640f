package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// survive runs one process after another on m, each until it dies, until nothing is left to
// deliver, and returns how many died.
func (m *memory) survive(t *testing.T, cfg Config, strike func(string, *outbox.Delivery) bool) (deaths int) {
	t.Helper()
	left := func() (n int) {
		m.locked(func() { n = len(m.records) })
		return n
	}
	for began := time.Now(); left() > 0; deaths++ {
		p := m.process(t, cfg, strike)
		defer p.bury()
		for alive := true; alive && left() > 0; {
			select {
			case <-p.dead:
				alive = false
			case <-time.After(100 * time.Millisecond):
			}
			if time.Since(began) > time.Hour {
				t.Fatalf("%d records are left after an hour and %d deaths", left(), deaths)
			}
		}
		if left() == 0 {
			if err := p.end(); err != nil {
				t.Errorf("stop the last process: %v", err)
			}
			break
		}
	}
	return deaths
}

// check wants every event delivered in the order of its key, but for those that may be dead.
func (m *memory) check(t *testing.T, events int, dead ...uuid.UUID) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var buried []uuid.UUID
	for _, o := range m.settled {
		if o.State == outbox.Dead {
			buried = append(buried, o.Record.ID)
		}
	}
	if !slices.Equal(buried, dead) {
		t.Errorf("dead are %v, want %v", buried, dead)
	}
	if len(m.received) != events-len(dead) {
		t.Errorf("%d events arrived, want %d", len(m.received), events-len(dead))
	}
	if len(m.overtaken) > 0 {
		t.Errorf("%d were overtaken: %s", len(m.overtaken), m.overtaken[0])
	}
	if len(m.clashes) > 0 {
		t.Errorf("%d times two relays published one lane: %s", len(m.clashes), m.clashes[0])
	}
}

// An event that kills whoever publishes it is found, wherever it lies, and nothing else pays for
// it.
func TestPoisonIsFound(t *testing.T) {
	t.Parallel()
	for _, lanes := range []int{1, outbox.LaneCount} {
		for _, workers := range []int{1, 2} {
			for _, index := range []int{0, 7, 63, 64, 500, 3999} {
				t.Run(fmt.Sprintf("%d lanes, %d workers, at %d", lanes, workers, index), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						m := &memory{}
						for lane := range int16(lanes) {
							if lane != 5 {
								m.fill([]int16{lane}, 40)
							}
						}
						first := len(m.records)
						m.fill([]int16{5}, 4000)
						events, poison := len(m.records), m.records[first+index].ID
						deaths := m.survive(t, Config{Workers: workers},
							func(_ string, d *outbox.Delivery) bool { return d != nil && d.ID == poison })
						if deaths > 8 {
							t.Errorf("%d processes died of it", deaths)
						}
						t.Logf("%d processes died", deaths)
						m.check(t, events, poison)
					})
				})
			}
		}
	}
}

// Whatever else happens to the relays, a dead letter is made of the poison only: SIGKILL anywhere,
// SIGSTOP, a stop in the middle of a trial, a broker that is down, rows that come in front of those
// that are being tried. The one thing that must not happen is that somebody kills twice while the
// same event is tried alone: nobody could tell.
func TestNoInnocentDies(t *testing.T) {
	t.Parallel()
	for range 6 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	m := &memory{due: map[uuid.UUID]time.Time{}}
	m.fill([]int16{5, 6, 7, 40}, 300)
	poison := m.records[random.IntN(len(m.records))].ID
	suspected := map[uuid.UUID]bool{} // killed once while alone

	var found, killed, frozen, stopped, late int
	dice := rand.New(rand.NewPCG(seed, 1)) // guarded by m.mu
	strike := func(_ string, d *outbox.Delivery) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if d != nil && d.ID == poison {
			found++
			return true
		}
		if killed == 40 || dice.IntN(150) > 0 {
			return false
		}
		for _, l := range m.lanes {
			if e := l.Trial.Event; e != uuid.Nil && e != poison {
				if suspected[e] {
					return false
				}
				suspected[e] = true
			}
		}
		killed++
		return true
	}
	cfg := Config{Workers: 1 + random.IntN(2), BatchRecords: 100, MaxAttempts: 1}
	var all, alive []*process
	left := len(m.records)
	for began := time.Now(); left > 0 || len(alive) == 0; {
		alive = slices.DeleteFunc(alive, func(p *process) bool {
			select {
			case <-p.dead:
				return true
			default:
				return false
			}
		})
		if len(alive) < 1+random.IntN(2) {
			p := m.process(t, cfg, strike)
			all, alive = append(all, p), append(alive, p)
		}
		switch p := alive[random.IntN(len(alive))]; random.IntN(60) {
		case 0:
			stopped++
			go func() { _ = p.end() }()
			alive = slices.DeleteFunc(alive, func(q *process) bool { return p == q })
		case 1:
			if frozen < 20 {
				frozen++
				p.freeze(30 * time.Second)
			}
		case 2:
			down := time.Now().Add(time.Duration(random.IntN(8)) * time.Second)
			m.locked(func() {
				m.publishHook = func(_ context.Context, batch []outbox.Delivery) []outbox.Result {
					if time.Now().Before(down) {
						return failAll(batch, outbox.Unavailable(errors.New("connection refused")))
					}
					return nil
				}
			})
		case 3:
			// Committed late: in front of everything else, without a key because nothing guards the
			// order of those.
			if late < 50 {
				late++
				m.locked(func() {
					row := &outbox.Record{Event: outbox.Event{ID: uuid.New(), Topic: "late"}, Position: -int64(late),
						Lane: []int16{5, 6, 7, 40}[random.IntN(4)]}
					m.records = slices.Insert(m.records, 0, row)
				})
			}
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		m.locked(func() { left = len(m.records) })
		if time.Since(began) > 2*time.Hour {
			t.Fatalf("%d records are left after two hours", left)
		}
	}
	m.locked(func() { m.publishHook = nil })
	for _, p := range all {
		p.bury()
	}
	t.Logf("the poison killed %d, chance %d; %d stood still, %d stopped, %d rows came late", found, killed, frozen,
		stopped, late)
	if found == 0 || killed == 0 {
		t.Error("nothing was killed")
	}
	m.check(t, 1200+late, poison)
}

// suspect makes a lane with some records, at which relays have died: its first record was tried
// alone by deaths of them.
func (m *memory) suspect(n, deaths int) {
	m.fill([]int16{0}, n)
	for i := range m.lanes {
		m.lanes[i].Number = int16(i)
	}
	m.lanes[0].Crashes, m.lanes[0].Trial = 5, outbox.Trial{Size: deaths, Event: m.records[0].ID}
}

// A relay that runs out of time while it tries an event alone has survived it. Its successor must
// not take it for dead.
func TestStopInTheMiddleOfATrial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.suspect(10, 1)
		m.publishHook = func(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
			<-ctx.Done() // a sink that does not answer
			return down(len(batch))
		}
		p := m.process(t, Config{DrainTimeout: time.Second}, nil)
		pass(time.Second)
		if trial := m.lanes[0].Trial; trial.Size != 2 || trial.Event != m.records[0].ID {
			t.Fatalf("trial %+v, want the second one of the first event", trial)
		}
		if err := p.end(); err == nil {
			t.Error("Run returned nil with a batch in flight")
		}
		if trial := m.lanes[0].Trial; trial.Size != 1 {
			t.Errorf("trial %+v after a stop, want that of the one death", trial)
		}
		m.locked(func() { m.publishHook = nil })
		if deaths := m.survive(t, Config{}, nil); deaths > 0 {
			t.Errorf("%d deaths", deaths)
		}
		m.check(t, 10)
		if l := m.lanes[0]; l.Crashes != 0 || l.Trial != (outbox.Trial{}) {
			t.Errorf("the lane is left as %+v", l)
		}
	})
}

// An event becomes a dead letter after three relays have crashed while it was alone in flight.
// After two crashes it is published again, because a SIGKILL from outside looks like such a crash.
func TestDeadLetterNeedsThreeCrashes(t *testing.T) {
	t.Parallel()
	for crashes, dead := range map[int][]uuid.UUID{2: nil, 3: {{1}}} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{}
			m.suspect(10, crashes)
			m.records[0].ID, m.lanes[0].Trial.Event = uuid.UUID{1}, uuid.UUID{1}
			if more := m.survive(t, Config{}, nil); more > 0 {
				t.Errorf("%d more crashes", more)
			}
			m.check(t, 10, dead...)
		})
	}
}

// Rows that were committed late lie in front of the one that was tried. They do not make the relays
// forget it.
func TestRowsInFrontOfTheSuspect(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 10, 60} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{}
			m.suspect(100, buriedAfter)
			poison := m.records[0].ID
			for i := range n {
				m.records = slices.Insert(
					m.records,
					0,
					&outbox.Record{Event: outbox.Event{ID: uuid.New(), Topic: "late"}, Position: -int64(i)},
				)
			}
			if deaths := m.survive(t, Config{},
				func(_ string, d *outbox.Delivery) bool { return d != nil && d.ID == poison }); deaths > 0 {
				t.Errorf("%d more died of an event of which enough had died already", deaths)
			}
			m.check(t, 100+n, poison)
		})
	}
}

// A claim may outlast what its lease had left when the turn began, each time. Lanes that are on
// trial are served all the same, as long as it is renewed.
func TestTrialWhoseClaimOutlastsTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{claimHook: func(context.Context) { time.Sleep(7 * time.Second) }}
		m.suspect(5, 1)
		m.fill([]int16{2, 4}, 5)
		m.lanes[2].Crashes = suspectAfter
		if deaths := m.survive(t, Config{LeaseTTL: 6 * time.Second, Workers: 1}, nil); deaths > 0 {
			t.Errorf("%d deaths", deaths)
		}
		m.check(t, 15)
	})
}

// A broker that is down proves nothing about the event that was tried.
func TestTrialInAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWeather()
		w.down = true
		w.suspect(100, buriedAfter-1)
		poison := w.records[0].ID
		strike := func(_ string, d *outbox.Delivery) bool { return d != nil && d.ID == poison }
		time.AfterFunc(time.Minute, func() { w.locked(func() { w.publishHook = nil }) })
		if deaths := w.survive(t, Config{MaxAttempts: 1}, strike); deaths != 1 {
			t.Errorf("%d deaths, want the last one of the poison alone", deaths)
		}
		w.check(t, 100, poison)
	})
}

// What a worker knows of a lane is of one epoch.
func TestLaneRecordJudgesEveryEpochOnce(t *testing.T) {
	t.Parallel()
	r, cfg := quarantine{}, tableConfig{}
	cfg.Logger, cfg.BatchRecords, cfg.Workers = slog.New(slog.DiscardHandler), 1000, 2
	lane := func(number int16, epoch int64, crashes int, trial outbox.Trial) outbox.Lane {
		return outbox.Lane{Number: number, Epoch: epoch, Crashes: crashes, Trial: trial}
	}
	event := uuid.New()
	for _, c := range []struct {
		what     string
		lane     outbox.Lane
		suspect  bool
		size     int
		unproven bool
	}{
		{"taken from one that left", lane(3, 1, 0, outbox.Trial{}), false, 0, false},
		{"taken from one that died", lane(3, 2, 1, outbox.Trial{}), false, 0, true},
		{"from a second one", lane(3, 3, 2, outbox.Trial{}), true, 1000, false},
		{"the same, read from the database in the middle of a trial",
			lane(3, 3, 2, outbox.Trial{Size: 1, Event: event}), true, 1000, false},
		{"from one that died in a trial", lane(3, 4, 3, outbox.Trial{Size: 1000}), true, 125, false},
		{"in a small one", lane(3, 5, 4, outbox.Trial{Size: 3}), true, 1, false},
		{"alone with an event", lane(3, 6, 5, outbox.Trial{Size: 1, Event: event}), true, 1, false},
		{"given away and taken back in peace", lane(3, 8, 0, outbox.Trial{}), false, 0, false},
	} {
		trusted, suspects := r.sift([]outbox.Lane{lane(2, 1, 0, outbox.Trial{}), c.lane}, &cfg)
		if (len(suspects) == 1) != c.suspect || len(trusted)+len(suspects) != 2 {
			t.Errorf("%s: %d trusted, %d suspects", c.what, len(trusted), len(suspects))
		} else if c.suspect && suspects[0].size != c.size {
			t.Errorf("%s: trials of %d, want %d", c.what, suspects[0].size, c.size)
		}
		if r.unproven[3] != c.unproven {
			t.Errorf("%s: unproven %t", c.what, r.unproven[3])
		}
		if len(r.seen) != 2 {
			t.Errorf("%s: %d lanes are known", c.what, len(r.seen))
		}
	}
	if trusted, suspects := r.sift(nil, &cfg); len(trusted)+len(suspects) != 0 {
		t.Error("lanes out of nowhere")
	}
}

// After a crash loop without a poison nearly as few batches go out as ever: suspect lanes are tried
// together.
func TestCrashLoopCostsFewBatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		trial outbox.Trial
	}{
		{"before a trial", outbox.Trial{}}, {"in a trial of a batch", outbox.Trial{Size: 1000}},
		{"in one of some events", outbox.Trial{Size: 15}}, {"while one was alone", outbox.Trial{Size: 1}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &memory{}
				var lanes []int16
				for lane := range int16(outbox.LaneCount) {
					lanes = append(lanes, lane)
					m.lanes[lane].Lane = outbox.Lane{Number: lane, Crashes: 6, Trial: c.trial}
				}
				m.fill(lanes, 300)
				events := len(m.records)
				var calls atomic.Int64
				m.publishHook = func(context.Context, []outbox.Delivery) []outbox.Result { calls.Add(1); return nil }
				if deaths := m.survive(t, Config{}, nil); deaths > 0 {
					t.Errorf("%d deaths", deaths)
				}
				m.check(t, events)
				const alone = 2 * 30 // of both workers
				if n, most := calls.Load(), int64(2*events/1000+alone); n == 0 || n > most {
					t.Errorf("%d events went out in %d batches, want some, and %d at most", events, n, most)
				}
			})
		})
	}
}
