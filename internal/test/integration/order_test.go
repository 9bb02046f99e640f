package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

const (
	orderEvents  = 10_000
	orderKeys    = 200
	orderWriters = 8
)

// history is what the writers know of each event.
type history struct {
	mu                    sync.Mutex
	committed, rolledBack map[string]bool
}

// writeConcurrently writes with Strict order: transactions of one key take turns, so that there is
// a commit order to compare with. That it is the order of positions is proven by the writer's own
// tests.
func writeConcurrently(t *testing.T, w *world, events int) *history {
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "test", Strict: true})
	if err != nil {
		t.Error(err)
		return nil
	}
	h := &history{committed: map[string]bool{}, rolledBack: map[string]bool{}}
	var wg sync.WaitGroup
	for n := range orderWriters {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for left := events / orderWriters; left > 0; {
				size := min(1+rng.IntN(20), left)
				left -= size
				if err := writeOne(t.Context(), w, writer, h, rng, size); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return h
}

var errRollback = errors.New("rolled back on purpose")

// writeOne is one transaction with events of one key.
func writeOne(ctx context.Context, w *world, writer *postgres.Writer, h *history, rng *rand.Rand, size int) error {
	key := fmt.Sprintf("key-%03d", rng.IntN(orderKeys))
	var events []outbox.Event
	for i := range size {
		e, err := outbox.NewEvent("order.changed", map[string]int{"n": i})
		if err != nil {
			return err
		}
		e.AggregateType, e.AggregateID = "Order", key
		events = append(events, e)
	}
	fate := rng.IntN(20)
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if err := writer.Write(ctx, tx, events...); err != nil {
			return err
		}
		switch {
		case fate < 2:
			return errRollback
		case fate < 5:
			time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond) // others overtake this one's positions
		}
		return nil
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		switch {
		case errors.Is(err, errRollback):
			h.rolledBack[e.ID.String()] = true
		case err == nil:
			h.committed[e.ID.String()] = true
		}
	}
	if errors.Is(err, errRollback) {
		return nil
	}
	return err
}

func (h *history) check(t *testing.T, w *world, received []message) {
	t.Helper()
	if len(h.rolledBack) == 0 || len(h.committed) == 0 {
		t.Fatalf("%d events committed, %d rolled back: the test needs both", len(h.committed), len(h.rolledBack))
	}
	got := map[string][]string{}
	seen := map[string]bool{}
	for _, m := range received {
		switch {
		case h.rolledBack[m.ID]:
			t.Fatalf("event %s was rolled back and arrived", m.ID)
		case !h.committed[m.ID]:
			t.Fatalf("event %s arrived and was never written", m.ID)
		case seen[m.ID]:
			t.Fatalf("event %s arrived twice", m.ID)
		}
		seen[m.ID] = true
		got[m.Key] = append(got[m.Key], m.ID)
	}
	if len(received) != len(h.committed) {
		t.Fatalf("%d events arrived, %d were committed", len(received), len(h.committed))
	}
	rows, err := w.pool.Query(t.Context(),
		"SELECT aggregate_id, array_agg(id::text ORDER BY position) FROM outbox_events GROUP BY 1")
	noError(t, err)
	var key string
	var want []string
	if _, err := pgx.ForEachRow(rows, []any{&key, &want}, func() error {
		if !slices.Equal(got[key], want) {
			return fmt.Errorf("%s arrived out of order", key)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events of %d keys arrived once and in order, %d were rolled back", len(received), len(got),
		len(h.rolledBack))
}
