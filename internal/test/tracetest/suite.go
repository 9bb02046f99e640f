package tracetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/test/model"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/relay"
)

const (
	runs = 10
	// leaseTTL is long enough for a busy machine to renew within it: relays that lose their leases
	// settle nothing.
	leaseTTL = time.Second
)

// steps are those of the model that the runs must have had, in what was seen or between.
var steps = []string{"write", "commit", "roll back", "lease", "lapse", "lose", "crash", "claim", "publish", "no answer",
	"refusal", "settle", "effect", "acknowledge", "replay", "failover", "recall"}

// Suite makes some runs, each on a database of its own, and fails if the model rejects one, or if
// one of its steps was in none.
func Suite(t *testing.T, open func(t *testing.T) (outboxtest.StoreHarness, inbox.Transactions[*sql.Tx])) {
	had := make(chan map[string]bool, runs)
	t.Run("runs", func(t *testing.T) {
		for seed := range uint64(runs) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				store, guard := open(t)
				s := &system{t: t, harness: store, guard: guard, random: rand.New(rand.NewPCG(seed, 0)), taken: map[uuid.UUID]int{},
					dies: 1 + int(seed%2), poison: int(seed % 3), sleeps: sleep(seed / 2 % 3)}
				trace := s.run()
				names, err := model.Accept(trace, true)
				if err != nil {
					for i, seen := range trace {
						t.Logf("%2d %v %v", i, seen.Action, seen.Rows)
					}
					t.Fatal(err)
				}
				had <- names
			})
		}
	})
	close(had)
	all := map[string]bool{}
	for names := range had {
		maps.Copy(all, names)
	}
	for _, name := range steps {
		if !all[name] {
			t.Errorf("no run has had the step %q", name)
		}
	}
}

// run has everything happen that a run is to have, and returns the trace of it once nothing more
// happens.
func (s *system) run() []model.Seen {
	s.write()
	stop := s.start()
	s.until("a process dies", func() bool { return s.processes[0].dead || s.processes[1].dead })
	s.succeed()
	s.until("all is delivered or dead, and consumed", s.ended)
	s.replay()
	s.until("what was replayed is delivered or dead, and consumed", s.ended)
	s.failover()
	s.until("what was forgotten is delivered or dead, and consumed", s.ended)
	stop()
	return s.trace()
}

// write commits three events of two keys, of which the first may be rolled back.
func (s *system) write() {
	for i, key := range []string{"a", "a", "b"} {
		id, err := uuid.NewV7()
		if err != nil {
			s.t.Fatal(err)
		}
		s.events[i] = id
		e := outbox.Event{ID: id, Topic: "t", Source: "shop", AggregateType: "Order", AggregateID: key,
			Payload: json.RawMessage(`{}`)}
		commit := i > 0 || s.random.IntN(3) > 0
		if err := s.harness.Write(s.t.Context(), outbox.WriterConfig{}, commit, []outbox.Event{e}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.harness.Exec(s.t, "CREATE TABLE standby AS SELECT * FROM outbox_events")
}

// failover has the database forget what was settled of an event since it was written, as a standby
// does that the last transactions had not reached. An event that was replayed is left out: that is
// no settle.
func (s *system) failover() {
	s.Lock()
	defer s.Unlock()
	for event, row := range s.rows() {
		if row.State != "SENT" || row.Replays > 0 || row.Attempts > 0 {
			continue
		}
		s.harness.Exec(s.t, "DELETE FROM outbox_events WHERE id = ?1", s.events[event])
		s.harness.Exec(s.t, "INSERT INTO outbox_events SELECT * FROM standby WHERE id = ?1", s.events[event])
		s.note(model.Action{Name: "failover", Relay: -1, Lane: -1, Event: int8(event)}, s.rows())
		return
	}
}

// start runs two relays and a consumer, and returns what stops them.
func (s *system) start() (stop func()) {
	for i := range s.processes {
		s.relay(i)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var consumer sync.WaitGroup
	consumer.Go(func() { s.consume(ctx) })
	stop = sync.OnceFunc(func() {
		for _, p := range s.processes {
			p.stop()
		}
		cancel()
		consumer.Wait()
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *system) relay(i int) {
	p := &process{Store: s.harness.Table(s.t, outbox.OutboxEvents()), system: s, relay: i}
	r, err := relay.New(tabletest.OneTable{Store: p}, outbox.SinkFunc(p.publish), relay.Config{
		Tables: []relay.Table{{Layout: outbox.OutboxEvents(), MaxAttempts: 2,
			Backoff: relay.Backoff{Base: 10 * time.Millisecond, Factor: 2, Cap: 20 * time.Millisecond}}},
		LeaseTTL: leaseTTL, PollMin: time.Millisecond, PollMax: 20 * time.Millisecond, DrainTimeout: time.Second,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // one that was killed says so
	}()
	p.stop = func() { cancel(); <-ended }
	s.processes[i] = p
}

// succeed starts another process in the place of the one that has died.
func (s *system) succeed() {
	for i, p := range s.processes {
		s.Lock()
		dead := p.dead
		s.Unlock()
		if dead {
			p.stop()
			s.relay(i)
		}
	}
}

// replay is an operator's, of everything that is dead.
func (s *system) replay() {
	letters := s.harness.Letters(s.t, outbox.OutboxEvents())
	dead, _, err := letters.List(s.t.Context(), deadletter.Filter{})
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Reverse(dead) // a key's letters in the order of its events, as a replay of several goes
	for _, letter := range dead {
		s.Lock()
		_, err := deadletter.Replay(s.t.Context(), letters, deadletter.ReplayOptions{
			Operator:  deadletter.Operator{Actor: "test", Reason: "trace"},
			Selection: deadletter.Selection{IDs: []uuid.UUID{letter.ID}}})
		if err != nil {
			s.t.Error(err)
		}
		event := slices.Index(s.events[:], letter.OriginalID)
		s.note(model.Action{Name: "replay", Relay: -1, Lane: -1, Event: int8(event)}, s.rows())
		s.Unlock()
	}
}

func (s *system) ended() bool {
	rows := s.rows()
	return len(s.sent) == 0 && !slices.ContainsFunc(rows[:], func(r model.Row) bool { return r.There && r.State == "NEW" })
}

func (s *system) until(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(10 * time.Millisecond) {
		s.Lock()
		done := is()
		s.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waited for too long: %s", what)
		}
	}
}
