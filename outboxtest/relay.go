package outboxtest

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
)

// Message is what a relay has delivered.
type Message struct {
	outbox.Event        // Metadata is in Body
	Destination  string // where to
	Body         []byte // as the envelope makes it: a CloudEvent, unless cfg says otherwise
}

// Messages are those that a relay of Relay has delivered, in the order of their arrival. It is safe
// for concurrent use.
type Messages struct {
	mu      sync.Mutex
	all     []Message
	read    int           // by Next
	arrived chan struct{} // closed, and replaced, by the next Publish
}

// Relay runs a relay on db until the test ends, delivering into memory, and returns what arrives.
// It must be the only relay there. Old rows stay.
//
//	messages := outboxtest.Relay(t, postgres.NewDB(pool))
//	placeOrder(…)
//	if m := messages.Next(t); m.Topic != "order.placed" { … }
//
// A change of cfg is for routes, retries and the like; Relay makes it find events within
// milliseconds.
func Relay(t testing.TB, db outbox.Database, change ...func(*relay.Config)) *Messages {
	t.Helper()
	cfg := relay.Config{PollMin: time.Millisecond, PollMax: 10 * time.Millisecond}
	cfg.Retention.After, cfg.LetterRetention.After = -1, -1
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	for _, f := range change {
		f(&cfg)
	}
	m := &Messages{arrived: make(chan struct{})}
	relay, err := relay.New(db, collector{m}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The test's own context ends before Cleanup, and the relay still has to give its lanes back.
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the relay of the test: %v", err)
		}
	})
	return m
}

// collector is the sink of a test's relay.
type collector struct{ *Messages }

// Publish implements outbox.Sink.
func (m collector) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range batch {
		d := &batch[i]
		message := Message{Event: d.Event, Destination: d.Destination, Body: d.AppendMessage(nil, outbox.CloudEvent)}
		message.Payload = bytes.Clone(d.Payload)
		m.all = append(m.all, message)
	}
	close(m.arrived)
	m.arrived = make(chan struct{})
	return make([]outbox.Result, len(batch))
}

// longestWait is long enough for a loaded machine: whoever waits that long fails.
const longestWait = 30 * time.Second

// Next returns the first message that it has not returned yet. It ends the test if there is none
// within 30 s.
func (m *Messages) Next(t testing.TB) Message {
	t.Helper()
	late := time.NewTimer(longestWait)
	defer late.Stop()
	for {
		next, arrived := m.next()
		if next != nil {
			return *next
		}
		select {
		case <-arrived:
		case <-late.C:
			t.Fatalf("no message arrived within %v; %d did before", longestWait, len(m.All()))
		case <-t.Context().Done():
			t.Fatal("the test has ended")
		}
	}
}

func (m *Messages) next() (*Message, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.read == len(m.all) {
		return nil, m.arrived
	}
	m.read++
	return &m.all[m.read-1], nil
}

// All returns what has arrived so far, whether Next has returned it or not.
func (m *Messages) All() []Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Message(nil), m.all...)
}
