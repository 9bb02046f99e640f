package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// receiver is what the destinations of a memory have received. A copy is refused; that an event overtakes an earlier one of its key is noted.
type receiver struct {
	received  []uuid.UUID
	known     map[uuid.UUID]bool
	last      map[int64]int64 // position, by key
	overtaken []string
	serving   map[int16]*process // lanes that somebody publishes now
	clashes   []string
}

func (m *memory) receive(d Delivery) Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known, m.last = map[uuid.UUID]bool{}, map[int64]int64{}
	}
	if m.known[d.ID] {
		return Result{Duplicate: true}
	}
	if d.Keyed && d.Position < m.last[d.OrderKey] {
		m.overtaken = append(m.overtaken, fmt.Sprintf("%d of key %d by %d", d.Position, d.OrderKey, m.last[d.OrderKey]))
	}
	m.last[d.OrderKey] = d.Position
	m.known[d.ID] = true
	m.received = append(m.received, d.ID)
	return Result{}
}

// fill adds n records to each of some lanes, in turn, with a few keys a lane.
func (m *memory) fill(lanes []int16, n int) {
	for i := range n {
		for _, lane := range lanes {
			m.records = append(m.records, &Record{
				Event: Event{ID: uuid.New(), Topic: fmt.Sprint(i)}, Position: int64(len(m.records) + 1),
				Lane: lane, OrderKey: int64(lane)*10 + int64(i%5), Keyed: i%6 != 5,
			})
		}
	}
}

// process is a relay that can die as a process does: from one moment on nothing that it does has an effect.
type process struct {
	*memory
	relay *Relay
	// strike tells whether the process dies at this point; "publish" comes before every delivery, d is nil elsewhere.
	strike func(point string, d *Delivery) bool
	slow   time.Duration // how long a publish takes

	frozen time.Time // until when it stands still, as by SIGSTOP; guarded by memory.mu

	once sync.Once
	dead chan struct{} // closed by the death
	gone chan struct{} // closed at the end of the test, so that its goroutines end
	end  func() error  // tells it to stop
}

var errDead = errors.New("this process is dead")

// process starts a relay on m.
func (m *memory) process(t *testing.T, cfg RelayConfig, strike func(string, *Delivery) bool) *process {
	t.Helper()
	p := &process{memory: m, strike: strike, slow: 3 * time.Millisecond, dead: make(chan struct{}), gone: make(chan struct{})}
	cfg.Logger = slog.New(slog.DiscardHandler)
	relay, err := NewRelay(p, p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.relay = relay
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { err = relay.Run(ctx); close(done) }()
	p.end = func() error { cancel(); <-done; return err }
	return p
}

func (p *process) die() {
	p.once.Do(func() {
		close(p.dead)
		p.locked(p.standStill)
	})
}

// freeze is SIGSTOP, and SIGCONT after d.
func (p *process) freeze(d time.Duration) {
	p.locked(func() { p.frozen = time.Now().Add(d); p.standStill() })
}

// standStill lets others publish the lanes of this process.
func (p *process) standStill() {
	for lane, by := range p.serving {
		if by == p {
			delete(p.serving, lane)
		}
	}
}

// bury ends the goroutines of a process that has died.
func (p *process) bury() {
	close(p.gone)
	_ = p.end()
}

// at is a moment at which the process may die; if it is dead it does not return before the test is over.
func (p *process) at(point string, d *Delivery) error {
	var frozen time.Duration
	p.locked(func() { frozen = time.Until(p.frozen) })
	time.Sleep(frozen)
	select {
	case <-p.dead:
	default:
		if p.strike == nil || !p.strike(point, d) {
			return nil
		}
		p.die()
	}
	<-p.gone
	return errDead
}

func (p *process) Lease(ctx context.Context, request LeaseRequest) (Leased, error) {
	if err := p.at("lease", nil); err != nil {
		return Leased{}, err
	}
	return p.memory.Lease(ctx, request)
}

func (p *process) Release(ctx context.Context, owner uuid.UUID, lanes []Lane) error {
	return errors.Join(p.at("release", nil), p.memory.Release(ctx, owner, lanes))
}

func (p *process) Leave(ctx context.Context, owner uuid.UUID) error {
	if err := p.at("leave", nil); err != nil {
		return err
	}
	return p.memory.Leave(ctx, owner)
}

func (p *process) Mark(ctx context.Context, owner uuid.UUID, lanes []Lane) error {
	if err := p.at("before mark", nil); err != nil {
		return err
	}
	err := p.memory.Mark(ctx, owner, lanes)
	return errors.Join(p.at("after mark", nil), err)
}

func (p *process) Claim(ctx context.Context, lanes []Lane, limit ClaimLimit) ([]*Record, error) {
	records, err := p.memory.Claim(ctx, lanes, limit)
	return records, errors.Join(p.at("after claim", nil), err)
}

func (p *process) Settle(ctx context.Context, owner uuid.UUID, lanes []Lane, outcomes []Outcome) (Settled, error) {
	if err := p.at("before settle", nil); err != nil {
		return Settled{}, err
	}
	settled, err := p.memory.Settle(ctx, owner, lanes, outcomes)
	return settled, errors.Join(p.at("after settle", nil), err)
}

func (p *process) Publish(ctx context.Context, batch []Delivery) []Result {
	if p.at("before publish", nil) != nil {
		return nil
	}
	p.serve(batch)
	defer p.rest(batch)
	time.Sleep(p.slow / 2)
	p.mu.Lock()
	hook := p.publishHook
	p.mu.Unlock()
	if hook != nil {
		if results := hook(ctx, batch); results != nil {
			return results
		}
	}
	results := make([]Result, len(batch))
	for i := range batch {
		if p.at("publish", &batch[i]) != nil {
			return nil
		}
		if err := ctx.Err(); err != nil { // as a client does that has been standing still
			results[i].Err = Unavailable(err)
			continue
		}
		results[i] = p.receive(batch[i])
	}
	time.Sleep(p.slow / 2)
	if p.at("after publish", nil) != nil {
		return nil
	}
	return results
}

// serve notes which lanes are being published, and that nobody else does so.
func (p *process) serve(batch []Delivery) {
	p.locked(func() {
		if p.serving == nil {
			p.serving = map[int16]*process{}
		}
		mine := map[int16]bool{}
		for _, d := range batch {
			if p.serving[d.Lane] != nil && !mine[d.Lane] {
				p.clashes = append(p.clashes, fmt.Sprintf("lane %d after %s", d.Lane, time.Since(p.started)))
			}
			mine[d.Lane] = true
			p.serving[d.Lane] = p
		}
	})
}

func (p *process) rest(batch []Delivery) {
	p.locked(func() {
		for _, d := range batch {
			if p.serving[d.Lane] == p {
				delete(p.serving, d.Lane)
			}
		}
	})
}

// survive runs one process after another on m, each until it dies, until nothing is left to deliver, and returns how many died.
func (m *memory) survive(t *testing.T, cfg RelayConfig, strike func(string, *Delivery) bool) (deaths int) {
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
		if o.State == Dead {
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

// An event that kills whoever publishes it is found, wherever it lies, and nothing else pays for it.
func TestPoisonIsFound(t *testing.T) {
	t.Parallel()
	for _, lanes := range []int{1, Lanes} {
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
						deaths := m.survive(t, RelayConfig{Workers: workers}, func(_ string, d *Delivery) bool { return d != nil && d.ID == poison })
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

// Whatever else happens to the relays, a dead letter is made of the poison only: SIGKILL anywhere, SIGSTOP, a stop in the middle of a trial, a broker that is
// down, rows that come in front of those that are being tried. The one thing that must not happen is that somebody kills twice while the
// same event is tried alone: nobody could tell.
func TestNoInnocentDies(t *testing.T) {
	t.Parallel()
	for range 25 {
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
	strike := func(_ string, d *Delivery) bool {
		if d != nil && d.ID == poison {
			found++
			return true
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if killed == 40 || random.IntN(150) > 0 {
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
	cfg := RelayConfig{Workers: 1 + random.IntN(2), BatchRecords: 100, MaxAttempts: 1}
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
				m.publishHook = func(_ context.Context, batch []Delivery) []Result {
					if time.Now().Before(down) {
						return failAll(batch, Unavailable(errors.New("connection refused")))
					}
					return nil
				}
			})
		case 3:
			if late < 50 { // committed late: in front of everything else, without a key because nothing guards the order of those
				late++
				m.locked(func() {
					row := &Record{Event: Event{ID: uuid.New(), Topic: "late"}, Position: -int64(late), Lane: []int16{5, 6, 7, 40}[random.IntN(4)]}
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
	t.Logf("the poison killed %d, chance %d; %d stood still, %d stopped, %d rows came late", found, killed, frozen, stopped, late)
	if found == 0 || killed == 0 {
		t.Error("nothing was killed")
	}
	m.check(t, 1200+late, poison)
}
