package outboxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func keepsAcknowledged(t *testing.T, s *suite) {
	to, _ := s.Listen(t)
	var batch []outbox.Delivery
	for i := range 100 {
		batch = append(batch, s.newEvent(t, to, strconv.Itoa(i%10)))
	}
	s.deliver(t, batch...)
	s.Restart(t)
	last := s.newEvent(t, to, "1")
	s.deliverAtLast(t, last) // the sink connects again by itself
	batch = append(batch, last)
	var want, got []string
	for _, d := range batch {
		want = append(want, d.ID.String())
	}
	for _, m := range s.Stored(t, to, len(batch)) {
		got = append(got, eventID(t, m.Body))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("after the restart %d events are stored, want the %d that were acknowledged", len(got), len(want))
	}
}

// deliverAtLast publishes until the answer is no longer that the broker is unavailable.
func (s *suite) deliverAtLast(t *testing.T, d outbox.Delivery) {
	t.Helper()
	for end := time.Now().Add(tier.Patience()); ; time.Sleep(50 * time.Millisecond) {
		res := s.Sink.Publish(t.Context(), []outbox.Delivery{d})[0]
		if res.Err == nil {
			return
		}
		if class, _ := outbox.Classify(res.Err); class != outbox.ClassUnavailable || time.Now().After(end) {
			t.Fatalf("after the restart the sink answers %+v", res)
		}
	}
}

func sendsAttributesAsHeaders(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	d := s.newEvent(t, to, "42")
	d.Payload = json.RawMessage(`{"total": "12 €"}`)
	d.RawMetadata = json.RawMessage(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","user_id":7}`)
	if got := s.Binary.Publish(t.Context(), []outbox.Delivery{d}); !slices.Equal(got, []outbox.Result{{}}) {
		t.Fatalf("answered %+v, want delivered", got)
	}
	m := receive(t, messages)
	if !bytes.Equal(m.Body, d.Payload) {
		t.Errorf("the body is %s, want the payload %s", m.Body, d.Payload)
	}
	headers := map[string]string{} // transports change the case of names
	for name, value := range m.Headers {
		headers[strings.ToLower(name)] = value
	}
	for name, want := range map[string]string{
		"specversion": "1.0", "id": d.ID.String(), "source": "orders", "type": "order.placed", "subject": "Order/42",
		"sequence": fmt.Sprintf("%019d", d.Sequence), "partitionkey": "42", "tenantid": "acme",
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		if got := headers[strings.ToLower(s.features.Headers+name)]; got != want {
			t.Errorf("header %s%s is %q, want %q; the message has %q", s.features.Headers, name, got, want,
				slices.Sorted(maps.Keys(m.Headers)))
		}
	}
}

func refusesTooLarge(t *testing.T, s *suite) {
	to, messages := s.Listen(t)
	bad, other := s.newEvent(t, to, "1"), s.newEvent(t, to, "2")
	bad.Payload = json.RawMessage(`"` + strings.Repeat("x", s.features.LargestMessage) + `"`)
	s.refusedForGood(t, to, messages, bad, other)
}

func refusesForbidden(t *testing.T, s *suite) {
	for _, name := range s.Forbidden {
		to, messages := s.Listen(t)
		s.refusedForGood(t, to, messages, s.newEvent(t, name, "1"), s.newEvent(t, to, "2"))
	}
}

// refusedForGood checks that bad fails for good, and that what is published with it does not pay
// for it.
func (s *suite) refusedForGood(t *testing.T, to string, messages <-chan Arrived, bad, other outbox.Delivery) {
	t.Helper()
	got := s.Sink.Publish(t.Context(), []outbox.Delivery{bad, other})
	if class, _ := outbox.Classify(got[0].Err); got[0].Err == nil || class != outbox.ClassPermanent {
		t.Errorf("destination %q is answered %+v, want an error of class permanent", bad.Destination, got[0])
	}
	if got[1] != (outbox.Result{}) {
		t.Errorf("the event beside it is answered %+v, want delivered", got[1])
	}
	s.expect(t, to, messages, other)
}
