package outboxtest

import (
	"encoding/json"
	"hash/fnv"
	"io"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// suite is what the tests share.
type suite struct {
	SinkHarness
	features SinkFeatures
	written  int64
}

// newEvent returns a delivery of an event that was never published. Events of one key stay in
// order.
func (s *suite) newEvent(t *testing.T, to, key string) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	s.written++
	h := fnv.New64a()
	_, _ = io.WriteString(h, key) // a hash takes everything
	orderKey := int64(h.Sum64())
	return outbox.Delivery{Destination: to, Record: &outbox.Record{
		Event: outbox.Event{
			ID: id, Topic: "order.placed", OccurredAt: time.Now().Truncate(time.Microsecond), AggregateType: "Order",
			AggregateID: key,
			TenantID:    "acme", Source: "orders", SchemaVersion: 1, Payload: json.RawMessage(`{"total": 1}`),
		},
		Position: s.written, Sequence: s.written, Keyed: true, OrderKey: orderKey,
		Lane: int16(uint64(orderKey) % outbox.LaneCount),
	}}
}

// toward is d's event for another destination.
func toward(d outbox.Delivery, destination string) outbox.Delivery {
	d.Destination = destination
	return d
}

// deliver publishes and checks that all were delivered for the first time.
func (s *suite) deliver(t *testing.T, batch ...outbox.Delivery) {
	t.Helper()
	got := s.Sink.Publish(t.Context(), batch)
	if len(got) != len(batch) {
		t.Fatalf("%d of %d deliveries are answered", len(got), len(batch))
	}
	for i, res := range got {
		if res != (outbox.Result{}) {
			t.Fatalf("delivery %d is answered %+v, want delivered", i, res)
		}
	}
}

// failedAlone checks an answer that counts against the event and not against the broker.
func (s *suite) failedAlone(t *testing.T, res outbox.Result) {
	t.Helper()
	class, _ := outbox.Classify(res.Err)
	if res.Err == nil || class == outbox.ClassUnavailable || class == outbox.ClassNotAttempted ||
		class == outbox.ClassPostponed {
		t.Errorf("the refusing destination is answered %+v, want an error of its own", res)
	}
}

func (s *suite) unavailable(t *testing.T, got []outbox.Result, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%d of %d deliveries are answered", len(got), n)
	}
	for i, res := range got {
		if class, _ := outbox.Classify(res.Err); res.Err == nil || class != outbox.ClassUnavailable {
			t.Errorf("delivery %d is answered %+v, want an error of class unavailable", i, res)
		}
	}
}

// expect checks that exactly these events are the next to arrive.
func (s *suite) expect(t *testing.T, to string, messages <-chan Arrived, want ...outbox.Delivery) {
	t.Helper()
	got := s.expectInAnyOrder(t, to, messages, want...)
	for i := range want {
		if got[i] != want[i].ID.String() {
			t.Fatalf("message %d is event %s, want %s", i, got[i], want[i].ID)
		}
	}
}

// expectInAnyOrder checks that exactly these events arrive, and returns their ids as they came.
// That no more arrive is known from an event published afterwards: it comes last, because the
// messages of a destination stay in order.
func (s *suite) expectInAnyOrder(
	t *testing.T, to string, messages <-chan Arrived, want ...outbox.Delivery,
) (got []string) {
	t.Helper()
	end := s.newEvent(t, to, "the end")
	s.deliver(t, end)
	missing := map[string]int{}
	for _, d := range want {
		missing[d.ID.String()]++
	}
	for {
		id := eventID(t, receive(t, messages).Body)
		if id == end.ID.String() {
			break
		}
		if missing[id] == 0 {
			t.Fatalf("event %s arrived, which should not have, or not again", id)
		}
		missing[id]--
		got = append(got, id)
	}
	if len(got) != len(want) {
		t.Fatalf("%d of %d events arrived", len(got), len(want))
	}
	return got
}

// eventID reads whose message it is.
func eventID(t *testing.T, message []byte) string {
	t.Helper()
	var m struct{ ID string }
	if err := json.Unmarshal(message, &m); err != nil {
		t.Fatalf("message %.200q is no CloudEvent: %v", message, err)
	}
	return m.ID
}

func receive(t *testing.T, messages <-chan Arrived) Arrived {
	t.Helper()
	select {
	case m, ok := <-messages:
		if !ok {
			t.Fatal("the harness stopped listening")
		}
		return m
	case <-time.After(tier.Patience()):
		t.Fatalf("no message for %s", tier.Patience())
	}
	return Arrived{}
}
