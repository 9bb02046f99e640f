package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// wholesale is a sink whose calls succeed or fail as a whole, as a script on Redis does.
type wholesale struct {
	*memory
	poison map[string]bool // topics that no call may have
	gone   bool
}

func (s *wholesale) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range batch {
		if s.poison[d.Topic] || s.gone {
			return failAll(batch, outbox.Unavailable(errors.New("connection closed by the server")))
		}
	}
	for _, d := range batch {
		s.published = append(s.published, d.Topic)
	}
	return make([]outbox.Result, len(batch))
}

func (s *wholesale) Abilities() outbox.Abilities { return outbox.Abilities{Probe: s.probe} }

func (s *wholesale) probe(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return errors.New("connection refused")
	}
	return nil
}

// Events that make any call fail in which they are become dead letters, wherever they are; the
// others of the same calls go out within seconds.
func TestACallThatFailsIsMadeSmaller(t *testing.T) {
	t.Parallel()
	for _, places := range [][]int{{0}, {999}, {500}, {0, 1, 2}, {10, 510, 990}} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &wholesale{memory: &memory{due: map[uuid.UUID]time.Time{}}, poison: map[string]bool{"poison": true}}
				for i := range 3000 {
					topic := "good"
					if slices.Contains(places, i) {
						topic = "poison"
					}
					s.records = append(s.records, &outbox.Record{Event: outbox.Event{ID: uuid.New(), Topic: topic}, Position: int64(i),
						OrderKey: int64(i % 1500), Keyed: true})
				}
				stop := s.run(t, Config{MaxAttempts: 2})
				pass(2 * time.Second)
				s.locked(func() {
					if held := len(places); len(s.published) < 3000-2*held {
						t.Errorf("%d of 3000 events were published after two seconds", len(s.published))
					}
				})
				pass(time.Minute)
				stop()
				dead := 0
				for _, o := range s.settled {
					if o.State == outbox.Dead {
						dead++
						if o.Record.Topic != "poison" || o.Attempts != 2 {
							t.Errorf("an event of topic %s died after %d attempts", o.Record.Topic, o.Attempts)
						}
					}
				}
				if dead != len(places) || len(s.published) != 3000-len(places) || len(s.records) != 0 {
					t.Errorf("%d events died, %d were published, %d are left", dead, len(s.published), len(s.records))
				}
			})
		})
	}
}

// run starts a relay, and returns what stops it.
func (s *wholesale) run(t *testing.T, cfg Config) (stop func()) {
	t.Helper()
	cfg.Logger, cfg.Workers = slog.New(slog.DiscardHandler), 1
	r, err := relayOf(s.memory, s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A broker that is gone takes no part either, and nobody is blamed for it.
func TestAnOutageIsNobodysFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &wholesale{memory: &memory{due: map[uuid.UUID]time.Time{}}, gone: true}
		s.add("a", "b", "c")
		stop := s.run(t, Config{MaxAttempts: 1})
		pass(5 * time.Minute)
		s.locked(func() { s.gone = false })
		pass(10 * time.Second)
		stop()
		for _, o := range s.settled {
			if o.State != outbox.Delivered || o.Attempts != 0 {
				t.Errorf("%s: state %d after %d attempts", o.Record.Topic, o.State, o.Attempts)
			}
		}
		if len(s.published) != 3 {
			t.Errorf("published %v", s.published)
		}
	})
}

// A relay that stood still in the middle of a batch sends no more of it: its lanes may be another's.
func TestNoCallAfterTheLease(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	m := &memory{publishHook: func(_ context.Context, batch []outbox.Delivery) []outbox.Result {
		if calls++; calls == 2 { // the first half
			cancel()
		}
		return failAll(batch, outbox.Unavailable(errors.New("connection refused")))
	}}
	batch := make([]outbox.Delivery, 8)
	for i := range batch {
		batch[i].Record = &outbox.Record{Event: outbox.Event{ID: uuid.New()}}
	}
	p := publisher{m}
	results := p.publish(ctx, batch)
	p.reduce(ctx, batch, results)
	if calls != 2 {
		t.Errorf("%d calls, want the first and one for its first half", calls)
	}
	if !wholly(results) {
		t.Errorf("results are %v, want a broker that is down", results)
	}
}
