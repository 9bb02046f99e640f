package postgres

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
)

// The batch is one transaction: its events exist exactly if all its statements succeeded, wherever
// in it they stand.
func TestQueueIsAtomicWithItsBatch(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	exec(t, pool, "CREATE TABLE orders (id int PRIMARY KEY)")
	w, err := NewWriter(outbox.WriterConfig{Source: "shop", Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	event := func(key string) outbox.Event {
		e, err := outbox.NewEvent("order.placed", map[string]string{"key": key})
		if err != nil {
			t.Fatal(err)
		}
		e.AggregateID = key
		return e
	}
	send := func(events int, statements ...string) error {
		var batch pgx.Batch
		for i, s := range statements {
			if i == len(statements)-1 {
				for range events {
					if err := w.Queue(t.Context(), &batch, event("a"), event("b")); err != nil {
						t.Fatal(err)
					}
				}
			}
			batch.Queue(s)
		}
		return pool.SendBatch(t.Context(), &batch).Close()
	}
	state := func() [2]int {
		return [2]int{query[int](t, pool, "SELECT count(*) FROM orders"),
			query[int](t, pool, "SELECT count(*) FROM outbox_events")}
	}
	if err := send(1, "INSERT INTO orders VALUES (1)", "INSERT INTO orders VALUES (2)"); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != [2]int{2, 2} {
		t.Errorf("orders and events: got %v, want 2 and 2", got)
	}
	// The last statement fails.
	if err := send(1, "INSERT INTO orders VALUES (3)", "INSERT INTO orders VALUES (1)"); err == nil {
		t.Error("a duplicate order was accepted")
	}
	if got := state(); got != [2]int{2, 2} {
		t.Errorf("after a failed batch: got %v, want nothing of it", got)
	}
}

func TestQueueRefuses(t *testing.T) {
	t.Parallel()
	w, err := NewWriter(outbox.WriterConfig{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	var batch pgx.Batch
	if err := w.Queue(t.Context(), &batch, outbox.Event{Topic: "t", Payload: []byte(`"\u0000"`)}); !errors.Is(err,
		outbox.ErrInvalidEvent) {
		t.Errorf("an invalid event: got %v", err)
	}
	strict, err := NewWriter(outbox.WriterConfig{Source: "shop", RefuseDuplicates: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := strict.Queue(t.Context(), &batch, outbox.Event{Topic: "t", Payload: []byte(`1`)}); err == nil {
		t.Error("RefuseDuplicates was accepted")
	}
	if batch.Len() != 0 {
		t.Errorf("%d statements were queued", batch.Len())
	}
}
