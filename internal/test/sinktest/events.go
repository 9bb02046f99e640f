// Package sinktest is what the tests of sinks share: events and what became of them, certificates,
// a way to a server that can break, what every driver is asked, and what is asked of a sink whose
// server dies.
//
// Guaranteed: a test that uses it waits for no longer than [tier.Patience].
//
// Not guaranteed: that a sink keeps its contract; that is outboxtest.SinkSuite's to find out.
package sinktest

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Event returns a delivery of a new event; events of the same key stay in order.
func Event(t testing.TB, destination string, key any) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New64a()
	fmt.Fprint(h, key)
	orderKey := int64(h.Sum64())
	return outbox.Delivery{Destination: destination, Record: &outbox.Record{
		Event: outbox.Event{
			ID: id, Topic: "order.placed", OccurredAt: time.Now().Truncate(time.Microsecond), AggregateType: "Order",
			AggregateID: fmt.Sprint(key), TenantID: "acme", Source: "orders", Payload: []byte(`{"total":1}`),
		},
		OrderKey: orderKey, Keyed: true, Lane: int16(uint64(orderKey) % outbox.LaneCount),
	}}
}

// IDEnvelope makes the event id the message: enough for most tests, and easy to compare.
func IDEnvelope(dst []byte, d *outbox.Delivery) []byte { return append(dst, d.ID.String()...) }

// IDs are those of the events of a batch.
func IDs(batch ...outbox.Delivery) (list []string) {
	for _, d := range batch {
		list = append(list, d.ID.String())
	}
	return list
}

// Deliver publishes, and wants all delivered for the first time.
func Deliver(t testing.TB, s outbox.Sink, batch ...outbox.Delivery) {
	t.Helper()
	for i, res := range s.Publish(t.Context(), batch) {
		if res != (outbox.Result{}) {
			t.Fatalf("delivery %d is answered %+v, want delivered", i, res)
		}
	}
}

// DeliverAtLast publishes until the server is there.
func DeliverAtLast(t testing.TB, s outbox.Sink, batch ...outbox.Delivery) {
	t.Helper()
	Eventually(t, func() bool {
		for i, res := range s.Publish(t.Context(), batch) {
			if res.Err != nil {
				if !Unavailable(res.Err) {
					t.Fatalf("delivery %d is answered %+v", i, res)
				}
				return false
			}
		}
		return true
	})
}

// WantCopies publishes, and wants all refused as copies.
func WantCopies(t testing.TB, s outbox.Sink, batch ...outbox.Delivery) {
	t.Helper()
	for i, res := range s.Publish(t.Context(), batch) {
		if res != (outbox.Result{Duplicate: true}) {
			t.Errorf("delivery %d is answered %+v, want duplicate", i, res)
		}
	}
}

// Unavailable tells whether an error is of that class.
func Unavailable(err error) bool {
	class, _ := outbox.Classify(err)
	return err != nil && class == outbox.ClassUnavailable
}

// WantClass wants an error of a class, with some texts in it.
func WantClass(t testing.TB, err error, want outbox.Class, says ...string) {
	t.Helper()
	class, _ := outbox.Classify(err)
	if err == nil || class != want {
		t.Errorf("got error %v of class %v, want class %v", err, class, want)
		return
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got error %q, want %q in it", err, text)
		}
	}
}

// WantUnavailable wants an answer of that class with a text in it.
func WantUnavailable(t testing.TB, res outbox.Result, says string) {
	t.Helper()
	if !Unavailable(res.Err) || !strings.Contains(res.Err.Error(), says) {
		t.Fatalf("answered %+v, want unavailable: %s", res, says)
	}
}

// Eventually waits until ok, for what another process does in its own time.
func Eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing for %s", tier.Patience())
		}
	}
}

// Closing closes a sink with the test.
func Closing[S interface{ Close() error }](t testing.TB, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// WantSame compares ids in any order.
func WantSame(t testing.TB, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%d arrived, want %d: %.400q, want %.400q", len(got), len(want), got, want)
	}
}
