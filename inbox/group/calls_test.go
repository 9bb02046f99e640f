package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/sink/late"
	"github.com/outboxrelay/outbox/relay"
)

// bench is a group without a database: begin is what a transaction waits for before its handler is
// called, commit what it waits for afterwards.
type bench struct {
	*Group[struct{}]
	begin, commit func(ctx context.Context) error
}

func newBench(t *testing.T, cfg Config) *bench {
	t.Helper()
	cfg.Name, cfg.Relay = "billing", relay.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	b := &bench{}
	do := func(ctx context.Context, deliveries []inbox.Delivery, fn func(struct{}, []inbox.Known) error) error {
		if b.begin != nil {
			if err := b.begin(ctx); err != nil {
				return err
			}
		}
		known := make([]inbox.Known, len(deliveries))
		for i := range known {
			known[i].ID = -1
		}
		if err := fn(struct{}{}, known); err != nil {
			return err
		}
		if b.commit != nil {
			return b.commit(ctx)
		}
		return nil
	}
	g, err := New(struct{ outbox.Database }{}, inbox.Transactions[struct{}]{Remembering: do,
		Inbox: func(cfg inbox.Config) (*inbox.Inbox[struct{}], error) { return inbox.New[struct{}](nil, cfg) },
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range g.cfg.Workers {
		g.calls.start()
	}
	b.Group = g
	return b
}

// publish publishes an event for each key, and returns the classes of what is answered in the end,
// r for an attempt.
func (b *bench) publish(keys ...int64) string {
	var batch []outbox.Delivery
	for _, key := range keys {
		batch = append(batch, outbox.Delivery{Record: &outbox.Record{Keyed: true, OrderKey: key,
			Event: outbox.Event{ID: uuid.New(), Topic: "e", AggregateID: fmt.Sprint(key), Payload: []byte(fmt.Sprint(key))}}})
	}
	ctx, cancel := context.WithTimeout(late.With(context.Background(), 50*time.Millisecond),
		sink[struct{}]{b.Group}.Abilities().Timeout())
	defer cancel()
	text := ""
	for _, r := range (sink[struct{}]{b.Group}).Publish(ctx, batch) {
		err := r.Err
		if answer := (*late.Answer)(nil); errors.As(err, &answer) {
			err = <-answer.C
		}
		class, _ := outbox.Classify(err)
		text += map[outbox.Class]string{outbox.ClassRetryable: "r", outbox.ClassUnavailable: "u",
			outbox.ClassNotAttempted: "n", outbox.ClassPostponed: "p"}[class]
		if err == nil {
			text = text[:len(text)-1] + "-"
		}
	}
	return text
}

func (b *bench) expect(t *testing.T, want string, took time.Duration, keys ...int64) {
	t.Helper()
	began := time.Now()
	if got := b.publish(keys...); got != want || time.Since(began) != took {
		t.Errorf("%v: answers %q after %s, want %q after %s", keys, got, time.Since(began), want, took)
	}
}

// Handlers that never return give their places up once a second has passed since their Timeout, and
// only their own keys wait.
func TestHangingHandlersGiveUpTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Workers: 2, Timeout: 10 * time.Second,
			Types: map[string]TypeConfig{"e": {AtATime: 2}}})
		release := make(chan struct{})
		Handle(b.Group, "e", func(ctx context.Context, _ struct{}, m Message[int]) error {
			if m.Data < 10 {
				<-release
			}
			return nil
		})
		b.expect(t, "rr-", 11*time.Second, 1, 2, 11) // the last is handled once a place is free
		b.expect(t, "--", 0, 11, 12)
		b.expect(t, "pp-", 0, 1, 2, 11)
		b.expect(t, "r-", 11*time.Second, 3, 11)
		if n := b.calls.underWay(); n != 3 {
			t.Errorf("%d calls are under way, want 3", n)
		}
		close(release)
		synctest.Wait()
		b.expect(t, "---", 0, 1, 2, 3)
		b.calls.close()
		b.calls.workers.Wait()
	})
}

// A handler has its whole Timeout, however long its transaction waited for a connection. A wait that
// takes too long is no attempt.
func TestTimeoutBeginsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Workers: 1, Timeout: 10 * time.Second})
		wait := func(d time.Duration) func(context.Context) error {
			return func(ctx context.Context) error {
				select {
				case <-time.After(d):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		Handle(b.Group, "e", func(ctx context.Context, _ struct{}, m Message[int]) error {
			return wait(time.Duration(m.Data) * time.Second)(ctx)
		})
		b.begin = wait(9 * time.Second)
		b.expect(t, "-", 18*time.Second, 9)
		b.expect(t, "r", 19*time.Second, 11)
		b.begin = wait(time.Hour)
		b.expect(t, "n", 11*time.Second, 1)
		b.begin = func(context.Context) error { return errors.New("no such table") }
		b.expect(t, "u", 0, 1)
		b.begin, b.commit = nil, func(ctx context.Context) error {
			<-ctx.Done()
			return outbox.Unavailable(errors.New("the outcome is unknown"))
		}
		b.expect(t, "u", 11*time.Second, 1) // and may be committed
		b.calls.close()
		b.calls.workers.Wait()
	})
}

// A handler that returns nil after its context has ended has no effect.
func TestHandlersThatReturnLateAreNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Workers: 1, Timeout: 10 * time.Second})
		committed := false
		b.commit = func(context.Context) error { committed = true; return nil }
		Handle(b.Group, "e", func(_ context.Context, _ struct{}, m Message[int]) error {
			time.Sleep(time.Duration(m.Data) * time.Millisecond)
			return nil
		})
		b.expect(t, "r", 10500*time.Millisecond, 10500)
		b.expect(t, "r", 11*time.Second, 20000)
		time.Sleep(time.Minute)
		if committed {
			t.Error("the transaction of a handler that was late is committed")
		}
		b.expect(t, "-", 9*time.Second, 9000)
		b.calls.close()
		b.calls.workers.Wait()
	})
}

// A process ends before handlers that hang take all of its memory.
func TestManyHangingHandlersEndTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Workers: 500, Timeout: time.Second})
		var stopped atomic.Bool
		release := make(chan struct{})
		b.stop = func() { stopped.Store(true) }
		Handle(b.Group, "e", func(context.Context, struct{}, Message[int]) error { <-release; return nil })
		keys := make([]int64, 500)
		for round, want := range []bool{false, true} {
			for i := range keys {
				keys[i] = int64(round*len(keys) + i)
			}
			b.publish(keys...)
			synctest.Wait()
			if stopped.Load() != want {
				t.Errorf("%d hang: stopped %t, want %t", b.calls.underWay(), stopped.Load(), want)
			}
		}
		close(release)
		b.calls.close()
		b.calls.workers.Wait()
	})
}
