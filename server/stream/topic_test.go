package stream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

func topic(after int64) Start {
	return Start{Source: Source{Tenant: "a", Topic: "order.placed"}, After: after, Now: after == 0}
}

func order(tenant string) []byte {
	return fmt.Appendf(nil, `{"id":"%s","type":"order.placed","sequence":"9","tenantid":"%s","data":{}}`,
		uuid.Must(uuid.NewV7()), tenant)
}

func TestTopic(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		r := open(t, h, topic(0))
		m.publish("order.placed", order("a"))
		m.publish("order.placed", order("b"))               // another tenant's
		m.publish("order.placed", []byte(`{"not":"ours"}`)) // nobody knows whose
		m.publish("order.placed", order("a"))
		b, err := r.Next(t.Context(), time.Second)
		if err != nil || len(b.Messages) != 2 {
			t.Fatalf("%d messages, %v, want the tenant's two", len(b.Messages), err)
		}
		cursor := r.Cursors()[0]
		r.Close()
		m.publish("order.placed", order("a")) // while nobody listens

		r = open(t, h, topic(cursor))
		if b, err = r.Next(t.Context(), time.Second); err != nil || len(b.Messages) != 1 || b.Reset {
			t.Fatalf("%+v, %v: a reader that comes back in time gets what it missed", b, err)
		}
		r.Close()

		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if h.Stats().Sources != 0 {
			t.Error("the topic is still followed")
		}
		r = open(t, h, topic(cursor))
		if b, err = r.Next(t.Context(), time.Second); err != nil || !b.Reset {
			t.Fatalf("%+v, %v: a reader that comes back too late is told", b, err)
		}
		m.publish("order.placed", order("a"))
		if b, err = r.Next(t.Context(), time.Second); err != nil || len(b.Messages) != 1 {
			t.Fatalf("%+v, %v after the reset", b, err)
		}
		r.Close()
		time.Sleep(2 * time.Minute)
	})
}

func TestTopicAfterALostConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		r := open(t, h, topic(0))
		m.publish("order.placed", order("a"))
		if b, err := r.Next(t.Context(), time.Second); err != nil || len(b.Messages) != 1 {
			t.Fatalf("%+v, %v", b, err)
		}
		for _, l := range m.listeners["order.placed"] {
			l.Lost()
			l.Resumed()
		}
		if b, err := r.Next(t.Context(), time.Second); err != nil || !b.Reset {
			t.Fatalf("%+v, %v, want a reset", b, err)
		}
		nothing(t, r)
		r.Close()
		time.Sleep(2 * time.Minute)
	})
}

// A reader that reads slower than the topic is told too.
func TestSlowReaderOfATopic(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		r := open(t, h, topic(0))
		for range 2 * topicRing.messages {
			m.publish("order.placed", order("a"))
		}
		if b, err := r.Next(t.Context(), time.Second); err != nil || !b.Reset {
			t.Fatalf("%+v, %v, want a reset", b, err)
		}
		r.Close()
		time.Sleep(2 * time.Minute)
	})
}

// An operator's replay publishes an event again, under its own id.
func TestTopicWithAnEventTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		r := open(t, h, topic(0))
		first := order("a")
		m.publish("order.placed", first)
		if b, err := r.Next(t.Context(), time.Second); err != nil || len(b.Messages) != 1 {
			t.Fatalf("%+v, %v", b, err)
		}
		m.publish("order.placed", order("a"))
		m.publish("order.placed", order("a"))
		m.publish("order.placed", first)
		if b, err := r.Next(t.Context(), time.Second); err != nil || len(b.Messages) != 3 {
			t.Fatalf("%d messages, %v, want the three after the first", len(b.Messages), err)
		}
		r.Close()
		time.Sleep(2 * time.Minute)
	})
}

// Anybody may name topics. One without messages is not kept, and no more than so many are.
func TestTopicsThatLinger(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		for i := range 2 * maxLingering {
			name := fmt.Sprint("topic ", i)
			r := open(t, h, Start{Source: Source{Tenant: "a", Topic: name}, Now: true})
			if i%2 == 0 || i < 100 {
				m.publish(name, order("a"))
			}
			r.Close()
		}
		if n := h.Stats().Sources; n != maxLingering {
			t.Errorf("%d topics are kept, want %d", n, maxLingering)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if h.lingering != 0 {
			t.Errorf("%d are counted as kept", h.lingering)
		}
	})
}

// While the broker is away a topic's reader gets nothing, and is told so: when it begins, and again
// when the broker is back.
func TestTopicWithoutABroker(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		m.locked(func() { m.down = true })
		r := open(t, h, topic(0))
		if b, err := r.Next(t.Context(), time.Second); err != nil || !b.Reset {
			t.Fatalf("%+v, %v, want a reset", b, err)
		}
		nothing(t, r)
		m.locked(func() { m.down = false })
		for _, l := range m.listeners["order.placed"] {
			l.Resumed()
		}
		if b, err := r.Next(t.Context(), time.Second); err != nil || !b.Reset {
			t.Fatalf("%+v, %v, want a reset", b, err)
		}
		m.publish("order.placed", order("a"))
		if b, err := r.Next(t.Context(), time.Second); err != nil || len(b.Messages) != 1 {
			t.Fatalf("%+v, %v, want the message", b, err)
		}
		r.Close()
		time.Sleep(2 * time.Minute)
	})
}
