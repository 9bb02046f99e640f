package outboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

func answersEvery(t *testing.T, s *suite) {
	if got := s.Sink.Publish(t.Context(), nil); len(got) != 0 {
		t.Fatalf("an empty batch is answered with %d results", len(got))
	}
	to, messages := s.Listen(t)
	var batch []outbox.Delivery
	for i := range 2500 {
		d := s.newEvent(t, to, strconv.Itoa(i%50))
		d.Keyed = i%3 != 0 // some have no order
		batch = append(batch, d)
	}
	s.deliver(t, batch...)
	s.expectInAnyOrder(t, to, messages, batch...)
}

func keepsOrder(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	var all []outbox.Delivery
	for _, size := range []int{1, 10, 1500, 7, 400} {
		var batch []outbox.Delivery
		for i := range size {
			batch = append(batch, s.newEvent(t, to, strconv.Itoa(i%10)))
		}
		s.deliver(t, batch...)
		all = append(all, batch...)
	}
	got := s.expectInAnyOrder(t, to, messages, all...)
	sent := map[string][]string{}
	for i := range all {
		sent[all[i].AggregateID] = append(sent[all[i].AggregateID], all[i].ID.String())
	}
	for key, ids := range sent {
		arrived := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !slices.Contains(ids, id) })
		if !slices.Equal(arrived, ids) {
			t.Errorf("key %s arrived out of order", key)
		}
	}
}

func servesEachDestination(t *testing.T, s *suite) {
	a, atA := s.Listen(t)
	b, atB := s.Listen(t)
	d := s.newEvent(t, a, "1")
	s.deliver(t, d, toward(d, b))
	s.expect(t, a, atA, d)
	s.expect(t, b, atB, d)
}

func carriesLargest(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	d := s.newEvent(t, to, "1")
	size := outbox.DefaultMaxPayload
	if most := s.features.LargestMessage; most > 0 {
		size = min(size, most-2048) // the attributes and the broker's own bytes
	}
	d.Payload = json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
	after := s.newEvent(t, to, "1")
	s.deliver(t, d, after)
	s.expect(t, to, messages, d, after)
}

func takesConcurrentCalls(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	batches := make([][]outbox.Delivery, 8)
	var all []outbox.Delivery
	for i := range batches {
		for range 200 {
			batches[i] = append(batches[i], s.newEvent(t, to, strconv.Itoa(i)))
		}
		all = append(all, batches[i]...)
	}
	var calls sync.WaitGroup
	for _, batch := range batches {
		calls.Go(func() {
			for part := range slices.Chunk(batch, 50) {
				for i, res := range s.Sink.Publish(t.Context(), part) {
					if res != (outbox.Result{}) {
						t.Errorf("delivery %d is answered %+v", i, res)
					}
				}
			}
		})
	}
	calls.Wait()
	s.expectInAnyOrder(t, to, messages, all...)
}

func answersEndedContext(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.unavailable(t, s.Sink.Publish(ctx, []outbox.Delivery{s.newEvent(t, to, "1"), s.newEvent(t, to, "2")}), 2)
	s.expect(t, to, messages) // nothing
}

func buildsCloudEvent(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	d := s.newEvent(t, to, "42")
	d.Payload = json.RawMessage(`{"total": "12 €"}`)
	d.RawMetadata = json.RawMessage(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","user_id":7}`)
	s.deliver(t, d)
	var got map[string]any
	if err := json.Unmarshal(receive(t, messages).Body, &got); err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339Nano, got["time"].(string))
	if err != nil || !at.Equal(d.OccurredAt) {
		t.Errorf("time is %v, want %v", got["time"], d.OccurredAt)
	}
	for name, want := range map[string]any{
		"specversion": "1.0", "id": d.ID.String(), "source": "orders", "type": "order.placed", "subject": "Order/42",
		"datacontenttype": "application/json", "sequence": fmt.Sprintf("%019d", d.Sequence), "partitionkey": "42",
		"tenantid":    "acme",
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "metadata": `{"user_id":7}`,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if data, ok := got["data"].(map[string]any); !ok || data["total"] != "12 €" {
		t.Errorf("data is %v", got["data"])
	}
}

// copy is the answer for a copy that was refused.
func (s *suite) copy() outbox.Result { return outbox.Result{Duplicate: !s.features.SilentDuplicates} }

func refusesCopy(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	var batch []outbox.Delivery
	for i := range 100 {
		batch = append(batch, s.newEvent(t, to, strconv.Itoa(i%10)))
	}
	s.deliver(t, batch[:60]...)
	// What a relay does after a crash between publish and settle: all of it again, with what came
	// since.
	for i, res := range s.Sink.Publish(t.Context(), batch) {
		if want := (outbox.Result{Duplicate: i < 60 && s.copy().Duplicate}); res != want {
			t.Fatalf("delivery %d is answered %+v, want %+v", i, res, want)
		}
	}
	s.expectInAnyOrder(t, to, messages, batch...)
}

func refusesCopyWithinBatch(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	d := s.newEvent(t, to, "1") // an event whose destinations name the same one twice
	got := s.Sink.Publish(t.Context(), []outbox.Delivery{d, d})
	if want := []outbox.Result{{}, s.copy()}; !slices.Equal(got, want) {
		t.Fatalf("answered %+v, want %+v", got, want)
	}
	s.expect(t, to, messages, d)
}

func letsReplayThrough(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	d := s.newEvent(t, to, "1")
	s.deliver(t, d)
	replayed := *d.Record
	replayed.Generation++
	again := outbox.Delivery{Record: &replayed, Destination: to}
	s.deliver(t, again)
	if got := s.Sink.Publish(t.Context(), []outbox.Delivery{again}); got[0] != s.copy() {
		t.Errorf("a copy of the replay is answered %+v", got[0])
	}
	s.expect(t, to, messages, d, d)
}

func holdsKeyBehindFailure(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	first, bad, later, other := s.newEvent(t, to, "1"), s.newEvent(t, s.Refusing, "1"), s.newEvent(t, to, "1"),
		s.newEvent(t, to, "2")
	freeBad, free := s.newEvent(t, s.Refusing, "1"), s.newEvent(t, to, "1")
	freeBad.Keyed, free.Keyed = false, false // the same numbers, but no order among them
	got := s.Sink.Publish(t.Context(),
		[]outbox.Delivery{first, bad, later, toward(later, s.Refusing), other, freeBad, free})
	s.failedAlone(t, got[1])
	s.failedAlone(t, got[5])
	for _, i := range []int{2, 3} {
		if !errors.Is(got[i].Err, outbox.ErrNotAttempted) {
			t.Errorf("delivery %d, behind the failed one, is answered %+v, want ErrNotAttempted", i, got[i])
		}
	}
	for _, i := range []int{0, 4, 6} {
		if got[i] != (outbox.Result{}) {
			t.Errorf("delivery %d is answered %+v, want delivered", i, got[i])
		}
	}
	s.expectInAnyOrder(t, to, messages, first, other, free)
	// Once the failed event is out of the way, the held one goes out as if for the first time.
	s.deliver(t, later)
	s.expect(t, to, messages, later)
}

func servesOthersOfFailed(t *testing.T, s *suite) {
	a, atA := s.Listen(t)
	b, atB := s.Listen(t)
	d := s.newEvent(t, a, "1")
	got := s.Sink.Publish(t.Context(), []outbox.Delivery{d, toward(d, s.Refusing), toward(d, b)})
	s.failedAlone(t, got[1])
	if got[0] != (outbox.Result{}) || got[2] != (outbox.Result{}) {
		t.Errorf("the other destinations are answered %+v and %+v, want delivered", got[0], got[2])
	}
	s.expect(t, a, atA, d)
	s.expect(t, b, atB, d)
}

func holdsKeyAcrossLargeBatch(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	// Larger than what a sink is likely to send in one piece.
	batch := []outbox.Delivery{s.newEvent(t, s.Refusing, "held")}
	var free []outbox.Delivery
	for i := range 5000 {
		key := strconv.Itoa(i % 20)
		if i%10 == 0 {
			key = "held"
		}
		d := s.newEvent(t, to, key)
		batch = append(batch, d)
		if key != "held" {
			free = append(free, d)
		}
	}
	for i, res := range s.Sink.Publish(t.Context(), batch) {
		held := batch[i].AggregateID == "held"
		switch {
		case i == 0:
			s.failedAlone(t, res)
		case held && !errors.Is(res.Err, outbox.ErrNotAttempted):
			t.Fatalf("delivery %d, behind the failed one, is answered %+v, want ErrNotAttempted", i, res)
		case !held && res != (outbox.Result{}):
			t.Fatalf("delivery %d is answered %+v, want delivered", i, res)
		}
	}
	s.expectInAnyOrder(t, to, messages, free...)
}

func returnsWhenContextEnds(t *testing.T, s *suite) {
	to, _ := s.Listen(t)
	s.deliver(t, s.newEvent(t, to, "1")) // connected
	resume := s.Stall(t)
	defer resume()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	start := time.Now()
	got := s.Sink.Publish(ctx, []outbox.Delivery{s.newEvent(t, to, "1"), s.newEvent(t, to, "2")})
	if waited := time.Since(start); waited > 3*time.Second {
		t.Errorf("Publish returned %s after its context's end", waited-200*time.Millisecond)
	}
	s.unavailable(t, got, 2)
}
