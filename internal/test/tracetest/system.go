package tracetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/test/model"
	"github.com/outboxrelay/outbox/outboxtest"
)

// system is two relays with a database and a sink, and a consumer. Its lock makes one call at a
// time.
type system struct {
	t         *testing.T
	harness   outboxtest.StoreHarness
	guard     inbox.Transactions[*sql.Tx] // the consumer's
	processes [2]*process

	sync.Mutex
	random *rand.Rand
	events [3]uuid.UUID
	lanes  [2]int16          // of the keys, as the rows have them
	taken  map[uuid.UUID]int // by the sink: generations
	sent   []int             // events that the consumer has not acknowledged
	seen   []seen
	sleeps sleep // what is still to come
	dies   int   // the process that publishes so many messages from here on dies with the last; 0: it has
	poison int   // the event that is refused until it is replayed
}

// sleep is where a process stops until its lease has lapsed, as one does that SIGSTOP meets.
type sleep int

const (
	awake sleep = iota
	behindClaim
	beforeSettle
)

// seen is a step with the lane's number and epoch, as the database has them.
type seen struct {
	model.Seen
	lane  int16
	epoch int64
}

// note adds a step. Caller holds the lock.
func (s *system) note(a model.Action, rows [3]model.Row) {
	s.seen = append(s.seen, seen{Seen: model.Seen{Action: a, Rows: &rows}})
}

// rows asks the database.
func (s *system) rows() (rows [3]model.Row) {
	for i, id := range s.events {
		text := s.harness.Value(s.t,
			"SELECT status || ' ' || retry_count || ' ' || generation FROM outbox_events WHERE id = ?1", id)
		if text == "" {
			continue
		}
		r := &rows[i]
		r.There = true
		if _, err := fmt.Sscan(text, &r.State, &r.Attempts, &r.Replays); err != nil {
			s.t.Error(err)
		}
		if r.State == "FAILED" {
			r.State = "NEW" // to be tried again
		}
	}
	return rows
}

// trace has of the leases those of the two lanes, and of each that was renewed nothing.
func (s *system) trace() (trace []model.Seen) {
	s.Lock()
	defer s.Unlock()
	type holder struct {
		relay int8
		lane  int16
	}
	held := map[holder]int64{}
	for _, step := range s.seen {
		if step.Name != "lease" {
			if ofLane := step.Name != "effect" && step.Name != "acknowledge"; ofLane && step.Event >= 0 {
				step.Lane = int8(step.Event / 2)
			}
			trace = append(trace, step.Seen)
			continue
		}
		lane := slices.Index(s.lanes[:], step.lane)
		if at := (holder{step.Relay, step.lane}); lane >= 0 && held[at] != step.epoch {
			held[at], step.Lane = step.epoch, int8(lane)
			trace = append(trace, step.Seen)
		}
	}
	return trace
}

// process is a relay's way to the database and to the sink.
type process struct {
	outbox.Store
	*system
	relay int
	dead  bool
	stop  func()
}

var errDead = errors.New("the process is dead")

// do makes a call, unless the process is dead.
func (p *process) do(call func() error) error {
	p.Lock()
	defer p.Unlock()
	if p.dead {
		return errDead
	}
	return call()
}

func (p *process) Lease(ctx context.Context, r outbox.LeaseRequest) (leased outbox.Leased, err error) {
	err = p.do(func() error {
		leased, err = p.Store.Lease(ctx, r)
		for _, l := range leased.Lanes {
			step := model.Seen{Action: model.Action{Name: "lease", Relay: int8(p.relay), Lane: -1, Event: -1}}
			p.seen = append(p.seen, seen{step, l.Number, l.Epoch})
		}
		return err
	})
	return leased, err
}

func (p *process) Release(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	return p.do(func() error { return p.Store.Release(ctx, owner, lanes) })
}

func (p *process) Leave(ctx context.Context, owner uuid.UUID) error {
	return p.do(func() error { return p.Store.Leave(ctx, owner) })
}

func (p *process) Mark(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	return p.do(func() error { return p.Store.Mark(ctx, owner, lanes) })
}

func (p *process) Claim(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) (records []*outbox.Record, err error) {
	err = p.do(func() error {
		records, err = p.Store.Claim(ctx, lanes, limit)
		for _, rec := range records {
			p.lanes[p.key(rec.ID)] = rec.Lane
		}
		return err
	})
	if len(records) > 0 {
		p.sleep(behindClaim)
	}
	return records, err
}

// sleep sleeps if it is to be here, and has not been yet.
func (p *process) sleep(here sleep) (slept bool) {
	p.Lock()
	now := p.sleeps == here
	if now {
		p.sleeps = awake
	}
	p.Unlock()
	if now {
		time.Sleep(2 * leaseTTL)
	}
	return now
}

func (p *process) Settle(
	ctx context.Context, owner uuid.UUID, lanes []outbox.Lane, outcomes []outbox.Outcome,
) (settled outbox.Settled, err error) {
	if p.sleep(beforeSettle) {
		ctx = context.WithoutCancel(ctx) // as if the statement was on its way
	}
	err = p.do(func() error {
		before := p.rows()
		settled, err = p.Store.Settle(ctx, owner, lanes, outcomes)
		rows := p.rows()
		of := map[int]bool{}
		for _, o := range outcomes {
			of[p.key(o.Record.ID)] = true
		}
		if rows == before { // lost, or refused: nobody hears of it
			return err
		}
		for key := range of {
			if len(of) > 1 && key == 0 {
				continue // with the other one, below
			}
			p.settles(key, of[0] && key == 1, before, rows)
		}
		return err
	})
	return settled, err
}

// settles notes a settle of a key, and of the other one before it if it is of both: the rows are
// those of both then.
func (p *process) settles(key int, both bool, before, rows [3]model.Row) {
	step := model.Action{Name: "settle", Relay: int8(p.relay), Event: -1}
	if both {
		half := [3]model.Row{rows[0], rows[1], before[2]}
		if half != before {
			p.note(step, half)
		}
		before = half
		step.Lane = 1
	}
	if step.Lane = int8(key); rows != before {
		p.note(step, rows)
	}
}

func (p *process) key(id uuid.UUID) int { return slices.Index(p.events[:], id) / 2 }

// publish is the sink, which remembers what it has taken. Now and then it refuses, or takes and
// does not say so.
func (p *process) publish(_ context.Context, d outbox.Delivery) error {
	return p.do(func() error {
		event := slices.Index(p.events[:], d.ID)
		step := model.Action{Name: "publish", Relay: int8(p.relay), Lane: -1, Event: int8(event)}
		taken := p.taken[d.ID] > d.Generation
		var err error
		switch n := p.random.IntN(6); {
		case !taken && (n == 0 || event == p.poison && d.Generation == 0):
			step.Name, err = "refusal", errors.New("refused")
		case n == 1:
			step.Name, err = "no answer", outbox.Unavailable(errors.New("no answer"))
		}
		if step.Name != "refusal" {
			p.taken[d.ID] = d.Generation + 1
		}
		if step.Name != "refusal" && !taken {
			p.sent = append(p.sent, event)
		}
		p.note(step, p.rows())
		if p.dies > 0 {
			p.dies--
			p.dead = p.dies == 0 // before anybody hears of the answer
		}
		return err
	})
}
