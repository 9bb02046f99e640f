package relay

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox"
)

// slowSink is a memory whose publishes may take a time of its own.
type slowSink struct {
	*memory
	limit time.Duration
}

func (s slowSink) Abilities() outbox.Abilities {
	return outbox.Abilities{Timeout: func() time.Duration { return s.limit }}
}

// slowly runs a relay of a sink that wants 40 s for a batch, and waits until one is on its way.
func slowly(t *testing.T, m *memory, cfg Config) (r *tableRelay, stop func() error) {
	t.Helper()
	cfg.Logger, cfg.Workers = slog.New(slog.DiscardHandler), 1
	r, err := relayOf(m, slowSink{m, 40 * time.Second}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	pass(time.Second) // it has made a turn, and is ready
	m.add("a", "b")
	pass(time.Second)
	return r, func() error { cancel(); return <-done }
}

// A batch of a slow sink outlasts its lease, which is renewed meanwhile.
func TestSlowSinkHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		var left time.Duration
		m.publishHook = func(ctx context.Context, _ []outbox.Delivery) []outbox.Result {
			end, _ := ctx.Deadline()
			left = time.Until(end)
			select {
			case <-ctx.Done():
				t.Errorf("the publish was ended: %v", ctx.Err())
			case <-time.After(39 * time.Second):
			}
			return nil
		}
		r, stop := slowly(t, m, Config{LeaseTTL: 9 * time.Second})
		pass(37 * time.Second)
		if ok, why := ready(r); !ok {
			t.Errorf("the relay is not ready: %s", why)
		}
		pass(2 * time.Second)
		if left != 40*time.Second || len(m.published) != 2 || len(m.settled) != 2 {
			t.Errorf("with %s the sink got %v, and %d were settled, want 40 s and two", left, m.published, len(m.settled))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// So may a batch of any other sink, within PublishTimeout: a claim may have left next to nothing of
// the lease.
func TestPublishOutlastsTheLeaseItBeganWith(t *testing.T) {
	m := &memory{}
	m.publishHook = func(ctx context.Context, _ []outbox.Delivery) []outbox.Result {
		select {
		case <-ctx.Done():
			t.Errorf("the publish was ended: %v", ctx.Err())
		case <-time.After(4900 * time.Millisecond):
		}
		return nil
	}
	m.add("a")
	cfg := Config{LeaseTTL: 3 * time.Second, PublishTimeout: 5 * time.Second}
	inBubble(t, m, cfg, func(t *testing.T, _ *tableRelay) {
		pass(6 * time.Second)
		m.locked(func() {
			if len(m.published) != 1 || len(m.settled) != 1 {
				t.Errorf("published %v, and %d were settled, want one", m.published, len(m.settled))
			}
		})
	})
}

// It ends with the lease if that is not renewed.
func TestSlowSinkEndsWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		began, ended := time.Now(), time.Time{}
		m.publishHook = func(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
			<-ctx.Done()
			if ended.IsZero() {
				ended = time.Now()
			}
			return failAll(batch, outbox.Unavailable(ctx.Err()))
		}
		_, stop := slowly(t, m, Config{LeaseTTL: 9 * time.Second, LeaseMargin: time.Second})
		m.locked(func() { m.leaseErr = func() error { return errors.New("no answer") } })
		pass(20 * time.Second)
		if took := ended.Sub(began); took < 8*time.Second || took > 9*time.Second {
			t.Errorf("the publish ended after %s, want 8 s and what the first second renewed", took)
		}
		_ = stop() // without its lanes
	})
}

// A relay that stops cuts a publish off early enough to settle what was delivered.
func TestSlowSinkIsCutOffToSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.publishHook = func(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
			<-ctx.Done()
			results := make([]outbox.Result, len(batch))
			results[1].Err = outbox.Unavailable(ctx.Err())
			return results
		}
		_, stop := slowly(t, m, Config{DrainTimeout: 15 * time.Second})
		asked := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(asked); took < 10*time.Second || took > 11*time.Second || len(m.settled) != 1 {
			t.Errorf("it stopped after %s with %d outcomes settled, want 10 s and 1", took, len(m.settled))
		}
	})
}
