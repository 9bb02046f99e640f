package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// counting is a sink that takes a while for each call.
type counting struct {
	takes time.Duration
	fails func(d outbox.Delivery) error

	mu                  sync.Mutex
	calls, most, events int
	sizes               []int
}

func (c *counting) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	c.mu.Lock()
	c.calls++
	c.most, c.events, c.sizes = max(c.most, c.calls), c.events+len(batch), append(c.sizes, len(batch))
	c.mu.Unlock()
	time.Sleep(c.takes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	results := make([]outbox.Result, len(batch))
	for i, d := range batch {
		if c.fails != nil {
			results[i].Err = c.fails(d)
		}
	}
	return results
}

func (*counting) Abilities() outbox.Abilities { return outbox.Abilities{} }

func (*counting) Close() error { return nil }

func deliveries(n int) (batch []outbox.Delivery) {
	for i := range n {
		batch = append(batch, outbox.Delivery{Record: &outbox.Record{
			Event: outbox.Event{ID: uuid.New()}, Keyed: true, OrderKey: int64(i % 10),
		}})
	}
	return batch
}

func TestLimitRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := &counting{}
		s := Limited(under, Limits{Rate: 100})
		began := time.Now()
		for i, r := range s.Publish(t.Context(), deliveries(500)) {
			if r.Err != nil {
				t.Fatalf("delivery %d: %v", i, r.Err)
			}
		}
		// A burst of 10 is free.
		if took := time.Since(began); took < 4890*time.Millisecond || took > 4910*time.Millisecond {
			t.Errorf("500 deliveries at 100 a second took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		served := 0
		for _, r := range s.Publish(ctx, deliveries(500)) {
			if r.Err == nil {
				served++
			} else if !errors.Is(r.Err, outbox.ErrNotAttempted) {
				t.Fatalf("answered %v, want ErrNotAttempted", r.Err)
			}
		}
		if served != 90 || ctx.Err() != nil {
			t.Errorf("%d served within a second, want 90; the context has ended: %v", served, ctx.Err())
		}
	})
}

func TestLimitConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := &counting{takes: time.Second}
		s := Limited(under, Limits{Concurrency: 2})
		var calls sync.WaitGroup
		for range 7 {
			calls.Go(func() { s.Publish(t.Context(), deliveries(1)) })
		}
		began := time.Now()
		calls.Wait()
		if took := time.Since(began); under.most != 2 || under.events != 7 || took != 4*time.Second {
			t.Errorf("%d calls at a time, %d events in %s, want 2, 7 and 4 s", under.most, under.events, took)
		}
		for range 2 {
			calls.Go(func() { s.Publish(t.Context(), deliveries(1)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if got := s.Publish(ctx, deliveries(2)); len(got) != 2 || !errors.Is(got[1].Err, outbox.ErrNotAttempted) {
			t.Errorf("without room it answers %v, want ErrNotAttempted twice", got)
		}
		calls.Wait()
	})
}

// What is behind a failed event in a later part is not published; other destinations of the event
// are.
func TestLimitKeepsOrder(t *testing.T) {
	batch := deliveries(40)
	again := batch[3]
	again.Destination = "other"
	batch = append(batch, again)
	under := &counting{fails: func(d outbox.Delivery) error {
		if d.ID == batch[3].ID && d.Destination == "" {
			return errors.New("no")
		}
		return nil
	}}
	s := Limited(under, Limits{Rate: 10_000}) // parts of 1000: all at once
	if got := s.Publish(t.Context(), batch); got[3].Err == nil {
		t.Error("the failure is not answered")
	}
	synctest.Test(t, func(t *testing.T) {
		s = Limited(under, Limits{Rate: 100}) // parts of 10
		for i, r := range s.Publish(t.Context(), batch) {
			want := "<nil>"
			switch {
			case i == 3:
				want = "no"
			case i%10 == 3:
				want = outbox.ErrNotAttempted.Error()
			}
			if got := fmt.Sprint(r.Err); got != want {
				t.Errorf("delivery %d is answered %s, want %s", i, got, want)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	if s := (&counting{}); Limited(s, Limits{}) != Sink(s) {
		t.Error("no limits make another sink")
	}
}
