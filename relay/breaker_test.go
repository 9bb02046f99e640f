package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

var errDown = errors.New("connection refused")

// weather is a sink that is down, or down for some keys, at times.
type weather struct {
	*memory
	down     bool
	downKeys func(d outbox.Delivery) bool
	slow     time.Duration
	calls    []int // sizes of the batches that met it down
	busy     int   // calls in flight while it is down
	crowd    int   // at most so many of them
	at       map[uuid.UUID]time.Duration
}

func newWeather() *weather {
	w := &weather{memory: &memory{due: map[uuid.UUID]time.Time{}}, at: map[uuid.UUID]time.Duration{},
		slow: 20 * time.Millisecond}
	w.publishHook = w.publish
	return w
}

func (w *weather) publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	results := make([]outbox.Result, len(batch))
	var down bool
	w.locked(func() {
		if down = w.down; down {
			w.calls = append(w.calls, len(batch))
			w.busy++
			w.crowd = max(w.crowd, w.busy)
		}
	})
	time.Sleep(w.slow)
	held := outbox.HeldKeys{}
	for i, d := range batch {
		partly := false
		w.locked(func() { partly = w.downKeys != nil && w.downKeys(d) })
		switch {
		case down:
			results[i].Err = outbox.Unavailable(errDown)
		case held.Holds(d.Record):
			results[i].Err = outbox.ErrNotAttempted
		case partly:
			results[i].Err = outbox.Unavailable(errDown)
			held.Hold(d.Record)
		default:
			results[i] = w.receive(d)
			w.locked(func() { w.at[d.ID] = time.Since(w.started) })
		}
	}
	w.locked(func() {
		if down {
			w.busy--
		}
	})
	return results
}

func (w *weather) set(down bool) {
	w.locked(func() { w.down, w.calls, w.busy, w.crowd, w.limits = down, nil, 0, 0, nil })
}

// unburnt wants everything delivered, in order, without an attempt counted.
func (w *weather) unburnt(t *testing.T, events int) {
	t.Helper()
	w.check(t, events)
	w.locked(func() {
		for _, o := range w.settled {
			if o.Record.Attempts != 0 {
				t.Errorf("event %d has %d attempts", o.Record.Position, o.Record.Attempts)
				return
			}
		}
	})
}

func down(n int) []outbox.Result {
	return failAll(make([]outbox.Delivery, n), outbox.Unavailable(errDown))
}

// A sink that takes long lags by steps, until its batches are quick again, or until nobody has
// asked it for a minute.
func TestBreakerLags(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := new(breaker)
		for _, c := range []struct {
			took, want time.Duration
			batches    int
		}{{10 * time.Millisecond, 0, 1}, {5 * time.Second, time.Second, 1}, {5 * time.Second, 4 * time.Second, 20},
			{100 * time.Millisecond, 2 * time.Second, 2}, {100 * time.Millisecond, 0, 10}, {3 * time.Second, 0, 1}} {
			for range c.batches {
				b.report(b.enter(false), c.took, []outbox.Result{{}})
			}
			if got := b.lags(); got != c.want {
				t.Errorf("after %d batches of %s: %s, want %s", c.batches, c.took, got, c.want)
			}
		}
		time.Sleep(2 * time.Minute)
		b.report(b.enter(false), 3*time.Second, []outbox.Result{{}})
		if got := b.lags(); got != 2*time.Second {
			t.Errorf("the first batch in a while: %s, want 2s", got)
		}
		b.report(b.enter(false), time.Hour, []outbox.Result{{Err: outbox.Unavailable(errors.New("away"))}})
		if time.Sleep(2 * time.Minute); b.lags() != 0 {
			t.Errorf("%s, although nobody has asked it for two minutes", b.lags())
		}
	})
}

func TestBreakerOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(breaker)
		first, second := b.enter(false), b.enter(false)
		b.report(first, 0, down(1000))
		b.leave(first)
		if !b.isOpen() {
			t.Fatal("closed after a batch of which nothing was taken")
		}
		b.report(second, 0, down(1000)) // was on its way
		b.leave(second)
		for _, ms := range []int{100, 200, 400, 800, 1600, 2000, 2000} {
			want := time.Duration(ms) * time.Millisecond
			if got := b.enter(false); got.wait != want {
				t.Fatalf("the next probe may begin after %s, want %s", got.wait, want)
			}
			time.Sleep(want)
			probe := b.enter(false)
			if other := b.enter(false); !probe.probe || probe.wait > 0 || other.wait == 0 {
				t.Fatalf("tickets %+v and %+v, want one probe", probe, other)
			}
			b.report(probe, 0, down(10))
			b.leave(probe)
		}
		time.Sleep(2 * time.Second)
		for range 3 { // that find nothing to publish, and must not stand in the way
			probe := b.enter(false)
			if !probe.probe || probe.wait > 0 {
				t.Fatalf("ticket %+v, want a probe", probe)
			}
			b.leave(probe)
		}
		probe := b.enter(false)
		b.report(probe, 0, []outbox.Result{{Err: outbox.Permanent(errors.New("refused"))}, {Err: outbox.ErrNotAttempted}})
		if b.isOpen() {
			t.Error("open although somebody was there to refuse an event")
		}
		b.leave(probe)
		if got := b.enter(false); got.probe || got.wait > 0 || got.outage != 1 {
			t.Errorf("ticket %+v after the first outage of more than 5 s", got)
		}
	})
}

// Who wants to be alone waits for the turns in flight, is let in before new ones, and who gives up
// meanwhile keeps nobody out.
func TestBreakerTurnAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(breaker)
		other := b.enter(false)
		if got := b.enter(true); got.wait == 0 {
			t.Fatal("alone beside another turn")
		}
		if got := b.enter(false); got.wait == 0 {
			t.Fatal("a new turn begins while somebody waits to be alone")
		}
		b.leave(other)
		alone := b.enter(true)
		if alone.wait > 0 || b.enter(true).wait == 0 || b.enter(false).wait == 0 {
			t.Fatal("want one turn, alone")
		}
		b.leave(alone)
		other = b.enter(false)
		if other.wait > 0 {
			t.Fatal("kept out after the one alone has left")
		}
		b.enter(true) // and is never seen again
		time.Sleep(time.Second)
		if b.enter(false).wait > 0 {
			t.Error("kept out by one that is gone")
		}
	})
}

// While the sink is down nothing but one small probe at a time is claimed and published, whatever
// the number of workers and relays.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 7} {
		w := newWeather()
		w.fill([]int16{0, 1, 2, 3, 4, 5, 6}, 1000)
		w.down = true
		inBubble(t, w.memory, Config{Workers: workers, MaxAttempts: 1, RecoveryRate: -1},
			func(t *testing.T, r *tableRelay) {
				pass(330 * time.Millisecond) // what was on its way, and its halves
				w.set(true)
				pass(time.Minute)
				w.locked(func() {
					if len(w.limits) < 28 || len(w.limits) > 40 || w.crowd != 1 {
						t.Errorf("%d probes in a minute, %d at a time", len(w.limits), w.crowd)
					}
					for i, l := range w.limits {
						if l.Records > min(probeRecords<<min(i, 20), maxBatchesPerClaim*r.cfg.BatchRecords) || l.Fair {
							t.Errorf("claim %d of an outage: %+v", i, l)
						}
					}
				})
				if len(w.received) != 0 || !r.cfg.breaker.isOpen() {
					t.Error("something was settled in an outage")
				}
				w.set(false)
				pass(maxProbe + partRetry + time.Second)
				w.unburnt(t, 7000)
			})
	}
}

// A relay that has nothing to do probes as well when its turn comes, and does not keep the other
// one from finding the sink well.
func TestIdleRelayDoesNotHoldTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle, busy, b := newWeather(), newWeather(), new(breaker)
		idle.started, busy.started = time.Now(), time.Now()
		busy.fill([]int16{1}, 3000)
		busy.down = true
		_, stopIdle := start(t, idle.memory, Config{}, b)
		_, stopBusy := start(t, busy.memory, Config{RecoveryRate: -1}, b)
		pass(time.Minute)
		busy.set(false)
		pass(maxProbe + partRetry + time.Second)
		busy.unburnt(t, 3000)
		if err := errors.Join(stopIdle(), stopBusy()); err != nil {
			t.Error(err)
		}
	})
}

// After an outage that has left a backlog, all workers and relays of a sink together deliver
// RecoveryRate, however small a claim is and however large.
func TestRecoveryRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		outage  time.Duration
		rate    int
		payload int
		paced   bool
	}{
		{"long", 10 * time.Second, 1000, 0, true},
		{"of a rate below a batch", 10 * time.Second, 300, 0, true},
		{"of payloads that make claims small", 10 * time.Second, 1000, 100 << 10, true},
		{"short", 3 * time.Second, 1000, 0, false},
		{"with pacing switched off", 10 * time.Second, -1, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := new(breaker)
				var tables []*weather
				var stops []func() error
				const events = 6000
				for range 2 {
					w := newWeather()
					w.slow = time.Millisecond
					w.started, w.down = time.Now(), true
					w.fill([]int16{0, 1, 2, 3}, events/4)
					for _, r := range w.records {
						r.Payload = make([]byte, c.payload)
					}
					_, stop := start(t, w.memory, Config{Workers: 2, RecoveryRate: c.rate}, b)
					tables, stops = append(tables, w), append(stops, stop)
				}
				pass(c.outage)
				for _, w := range tables {
					w.set(false)
				}
				pass(time.Duration(2*events/300+10) * time.Second)
				perSecond := map[int]int{}
				for _, w := range tables {
					w.unburnt(t, events)
					for _, at := range w.at {
						perSecond[int(at/time.Second)]++
					}
				}
				counts := slices.Sorted(maps.Values(perSecond))
				most := counts[len(counts)-1]
				if paced := most <= 1000+c.rate*3/2; paced != c.paced { // 1000: the probe that found the sink there
					t.Errorf("up to %d a second at a rate of %d (in %d seconds)", most, c.rate, len(perSecond))
				}
				if c.paced && counts[len(counts)-2] > c.rate*3/2 {
					t.Errorf("%v a second at a rate of %d", counts, c.rate)
				}
				if c.paced && len(perSecond) > 2*2*events/c.rate {
					t.Errorf("it took %d seconds for %d events at a rate of %d", len(perSecond), 2*events, c.rate)
				}
				for _, stop := range stops {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// A part of the sink is down, for many more keys than a probe or a claim brings. The other keys'
// events arrive as if nothing were, also the first one after a long silence; the keys concerned
// wait, in order and without an attempt counted.
func TestPartialOutage(t *testing.T) {
	t.Parallel()
	for _, backlog := range []int{3, 600, 1500} { // keys of the part that is down
		for _, silence := range []time.Duration{0, 10 * time.Second, 2 * time.Minute} {
			t.Run(fmt.Sprintf("%d keys, silence %s", backlog, silence), func(t *testing.T) {
				t.Parallel()
				w := newWeather()
				row := func(key int64) *outbox.Record {
					r := &outbox.Record{
						Event:    outbox.Event{ID: uuid.New(), Topic: "t"},
						Position: int64(len(w.settled) + len(w.records) + 1),
						Keyed:    true,
						OrderKey: key,
					}
					w.records = append(w.records, r)
					return r
				}
				for range 3 {
					for key := range backlog {
						row(int64(-1 - key))
						row(int64(1 + key))
					}
				}
				events := len(w.records)
				w.downKeys = func(d outbox.Delivery) bool { return d.OrderKey < 0 }
				inBubble(t, w.memory, Config{MaxAttempts: 1, RecoveryRate: -1}, func(t *testing.T, _ *tableRelay) {
					pass(20 * time.Second)
					w.locked(func() {
						if len(w.received) != events/2 {
							t.Errorf("%d events of the other keys arrived, want %d", len(w.received), events/2)
						}
					})
					pass(silence)
					written := map[uuid.UUID]time.Duration{}
					for n := range 20 {
						w.locked(func() { written[row(int64(1+n%4)).ID] = time.Since(w.started) })
						pass(50 * time.Millisecond)
					}
					pass(5 * time.Second)
					var worst time.Duration
					w.locked(func() {
						for id, at := range written {
							if w.at[id] == 0 {
								t.Error("an event of another key did not arrive within 5 s")
								break
							}
							worst = max(worst, w.at[id]-at)
						}
					})
					if worst > 2500*time.Millisecond {
						t.Errorf("an event of another key took %s", worst)
					}
					t.Log("worst", worst)
					w.locked(func() { w.downKeys = nil })
					pass(10 * time.Second)
					w.unburnt(t, events+20)
				})
			})
		}
	}
}

// To be told to stop in an outage does not take until its end.
func TestStopInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeather()
		w.fill([]int16{1, 2}, 100)
		w.down = true
		_, stop := start(t, w.memory, Config{Workers: 2})
		pass(time.Minute)
		asked := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(asked); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// A sink that panics at one event just when it is being probed is there: the breaker closes, and
// only that event pays.
func TestPanicWhileProbing(t *testing.T) {
	w := newWeather()
	w.fill([]int16{1}, 200)
	w.down = true
	culprit := w.records[3].ID
	w.publishHook = func(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
		var there bool
		w.locked(func() { there = !w.down })
		for _, d := range batch {
			if d.ID == culprit && there {
				panic("nil map")
			}
		}
		return w.publish(ctx, batch)
	}
	inBubble(t, w.memory, Config{MaxAttempts: 1}, func(t *testing.T, _ *tableRelay) {
		pass(30 * time.Second)
		w.set(false)
		pass(maxProbe + partRetry + time.Second)
		w.check(t, 200, culprit)
	})
}

// Callers share the rate, a rate of one is one, and one below zero is none.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(breaker)
		b.closed = time.Now()
		for _, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
			if got := b.pace(1000, 1000); got != want {
				t.Errorf("pace is %s, want %s", got, want)
			}
		}
		time.Sleep(30 * time.Second) // what was not used is not saved up
		if got := b.pace(1, 1); got != time.Second {
			t.Errorf("pace is %s, want 1 s", got)
		}
		if got := b.pace(1<<20, -1); got != 0 {
			t.Errorf("pace is %s without a rate", got)
		}
		if got := b.pace(1<<20, 1); got != 1<<20*time.Second+time.Second {
			t.Errorf("pace is %s", got)
		}
		b.paced = time.Time{}
		// Three minutes after the outage; with more than the rate being written all the time the
		// backlog would never end.
		time.Sleep(150 * time.Second)
		if got := b.pace(1000, 1000); got != time.Second/8 {
			t.Errorf("pace is %s after three minutes, want an eighth of a second", got)
		}
	})
}
