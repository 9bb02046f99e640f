package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// receiver is what the destinations of a memory have received. A copy is refused; that an event
// overtakes an earlier one of its key is noted.
type receiver struct {
	received  []uuid.UUID
	known     map[uuid.UUID]bool
	last      map[int64]int64 // position, by key
	overtaken []string
	serving   map[int16]*process // lanes that somebody publishes now
	clashes   []string
}

func (m *memory) receive(d outbox.Delivery) outbox.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known, m.last = map[uuid.UUID]bool{}, map[int64]int64{}
	}
	if m.known[d.ID] {
		return outbox.Result{Duplicate: true}
	}
	if d.Keyed && d.Position < m.last[d.OrderKey] {
		m.overtaken = append(m.overtaken, fmt.Sprintf("%d of key %d by %d", d.Position, d.OrderKey, m.last[d.OrderKey]))
	}
	if d.Keyed {
		m.last[d.OrderKey] = d.Position
	}
	m.known[d.ID] = true
	m.received = append(m.received, d.ID)
	return outbox.Result{}
}

// fill adds n records to each of some lanes, in turn, with a few keys a lane.
func (m *memory) fill(lanes []int16, n int) {
	for i := range n {
		for _, lane := range lanes {
			m.records = append(m.records, &outbox.Record{
				Event: outbox.Event{ID: uuid.New(), Topic: fmt.Sprint(i)}, Position: int64(len(m.records) + 1),
				Lane: lane, OrderKey: int64(lane)*10 + int64(i%5), Keyed: i%6 != 5,
			})
		}
	}
}

// process is a relay that can die as a process does: from one moment on nothing that it does has an
// effect.
type process struct {
	*memory
	relay *tableRelay
	// strike tells whether the process dies at this point; "publish" comes before every delivery, d
	// is nil elsewhere.
	strike func(point string, d *outbox.Delivery) bool
	slow   time.Duration // how long a publish takes
	single bool          // what is being published is one event, on trial; guarded by memory.mu

	frozen time.Time // until when it stands still, as by SIGSTOP; guarded by memory.mu

	once sync.Once
	dead chan struct{} // closed by the death
	gone chan struct{} // closed at the end of the test, so that its goroutines end
	end  func() error  // tells it to stop
}

var errDead = errors.New("this process is dead")

// process starts a relay on m.
func (m *memory) process(t *testing.T, cfg Config, strike func(string, *outbox.Delivery) bool) *process {
	t.Helper()
	p := &process{memory: m, strike: strike, slow: 3 * time.Millisecond, dead: make(chan struct{}),
		gone: make(chan struct{})}
	cfg.Logger = slog.New(slog.DiscardHandler)
	relay, err := relayOf(p, p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.relay = relay
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { err = relay.run(ctx); close(done) }()
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

// at is a moment at which the process may die; if it is dead it does not return before the test is
// over.
func (p *process) at(point string, d *outbox.Delivery) error {
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

func (p *process) Lease(ctx context.Context, request outbox.LeaseRequest) (outbox.Leased, error) {
	if err := p.at("lease", nil); err != nil {
		return outbox.Leased{}, err
	}
	return p.memory.Lease(ctx, request)
}

func (p *process) Release(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	if err := p.at("release", nil); err != nil {
		return err
	}
	return p.memory.Release(ctx, owner, lanes)
}

func (p *process) Leave(ctx context.Context, owner uuid.UUID) error {
	if err := p.at("leave", nil); err != nil {
		return err
	}
	return p.memory.Leave(ctx, owner)
}

func (p *process) Mark(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	if err := p.at("before mark", nil); err != nil {
		return err
	}
	err := p.memory.Mark(ctx, owner, lanes)
	return errors.Join(p.at("after mark", nil), err)
}

func (p *process) Claim(ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit) ([]*outbox.Record, error) {
	records, err := p.memory.Claim(ctx, lanes, limit)
	return records, errors.Join(p.at("after claim", nil), err)
}

func (p *process) Settle(
	ctx context.Context,
	owner uuid.UUID,
	lanes []outbox.Lane,
	outcomes []outbox.Outcome,
) (outbox.Settled, error) {
	if err := p.at("before settle", nil); err != nil {
		return outbox.Settled{}, err
	}
	settled, err := p.memory.Settle(ctx, owner, lanes, outcomes)
	return settled, errors.Join(p.at("after settle", nil), err)
}

func (p *process) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	if p.at("before publish", nil) != nil {
		return nil
	}
	if ctx.Err() != nil { // it stood still between the relay's look and here, and sends nothing now
		return failAll(batch, outbox.Unavailable(ctx.Err()))
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
	results := make([]outbox.Result, len(batch))
	for i := range batch {
		if p.at("publish", &batch[i]) != nil {
			return nil
		}
		if err := ctx.Err(); err != nil { // as a client does that has been standing still
			results[i].Err = outbox.Unavailable(err)
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
func (p *process) serve(batch []outbox.Delivery) {
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
		// Only what is published alone can be blamed for the death of the process.
		single := len(batch) == 1 && p.lanes[batch[0].Lane].Trial.Event == batch[0].ID
		for lane, by := range p.serving {
			if by == p && !mine[lane] && (single || p.single) {
				p.clashes = append(p.clashes, fmt.Sprintf("lane %d during a trial of a single event", lane))
			}
		}
		p.single = single
	})
}

func (p *process) rest(batch []outbox.Delivery) {
	p.locked(func() {
		for _, d := range batch {
			if p.serving[d.Lane] == p {
				delete(p.serving, d.Lane)
			}
		}
	})
}
