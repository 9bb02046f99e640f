package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/testenv"
	"github.com/outboxrelay/outbox/sink"
)

// ear is an outbox.Listener that remembers what it was told, of a CloudEvent its id.
type ear struct {
	mu   sync.Mutex
	told []string
}

const (
	wasLost    = "(lost)"
	wasResumed = "(resumed)"
)

func (e *ear) Message(payload []byte) {
	var m struct{ ID string }
	if json.Unmarshal(payload, &m) != nil || m.ID == "" {
		m.ID = string(payload)
	}
	e.tell(m.ID)
}
func (e *ear) Lost()    { e.tell(wasLost) }
func (e *ear) Resumed() { e.tell(wasResumed) }

func (e *ear) tell(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, what)
}

func (e *ear) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.told)
}

// wants waits until e was told exactly this.
func (e *ear) wants(t *testing.T, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); !slices.Equal(e.all(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("was told %.300q, want %.300q", e.all(), want)
		}
	}
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// startListener runs a listener until the test ends.
func startListener(t *testing.T, url string) sink.Subscriber {
	t.Helper()
	l, err := Driver().Subscribe(url, sink.Options{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

func hear(t *testing.T, l sink.Subscriber, subject string, e *ear) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	ok, stop := l.Subscribe(ctx, subject, e)
	if !ok {
		t.Fatalf("not acknowledged: %+v", l.State())
	}
	return stop
}

// A listener hears what the sink publishes to a stream, is told that the server died and came back, who comes
// meanwhile does not wait, and all hear again without doing anything.
func TestListenerHearsTheSink(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	s, js := open(t, server, Config{})
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	l := startListener(t, server.URL())
	var before, twin, during, gone ear
	hear(t, l, "s.a", &before)
	hear(t, l, "s.a", &twin)
	stopGone := hear(t, l, "s.gone", &gone)
	one, two, other := newEvent(t, "s.a", 1), newEvent(t, "s.a", 1), newEvent(t, "s.other", 1)
	deliver(t, s, one, two, other)
	before.wants(t, one.ID.String(), two.ID.String())
	twin.wants(t, one.ID.String(), two.ID.String())
	stopGone()
	stopGone()

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	before.wants(t, one.ID.String(), two.ID.String(), wasLost)
	waits, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if ok, _ := l.Subscribe(waits, "s.b", &during); ok || waits.Err() != nil {
		t.Errorf("Subscribe while NATS is down: %v, %v", ok, waits.Err())
	}
	if state := l.State(); state.Up || state.Err == nil {
		t.Errorf("while NATS is down: %+v", state)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	before.wants(t, one.ID.String(), two.ID.String(), wasLost, wasResumed)
	during.wants(t, wasResumed)
	three, four := newEvent(t, "s.a", 1), newEvent(t, "s.b", 1)
	deliverAtLast(t, s, three, four)
	before.wants(t, one.ID.String(), two.ID.String(), wasLost, wasResumed, three.ID.String())
	during.wants(t, wasResumed, four.ID.String())
	gone.wants(t)
	if state := l.State(); !state.Up || state.Err != nil || state.Channels != 2 || state.Reconnects != 1 {
		t.Errorf("afterwards: %+v", state)
	}
}

// deliverAtLast publishes until the server is there.
func deliverAtLast(t *testing.T, s sink.Sink, batch ...outbox.Delivery) {
	t.Helper()
	eventually(t, func() bool {
		for i, res := range s.Publish(t.Context(), batch) {
			if class, _ := outbox.Classify(res.Err); res.Err != nil && class != outbox.ClassUnavailable {
				t.Fatalf("delivery %d is answered %+v", i, res)
			} else if res.Err != nil {
				return false
			}
		}
		return true
	})
}

// A name with a wildcard would be the subjects of others, and a user may not hear everything: neither is acknowledged,
// and nobody else pays for it. Rights that are widened are noticed.
func TestListenerIsRefused(t *testing.T) {
	t.Parallel()
	const rights = `authorization { users: [
		{ user: ear, password: hunter2, permissions: { subscribe: [RIGHTS] } },
		{ user: mouth, password: hunter3 } ] }`
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true, Text: strings.Replace(rights, "RIGHTS", "mine", 1)})
	l := startListener(t, "nats://ear:hunter2@"+server.Addr())
	var mine, yours, all ear
	hear(t, l, "mine", &mine)
	waits, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	for name, e := range map[string]*ear{"yours": &yours, ">": &all, "*": &all, "a b": &all, "": &all, "$SYS.x": &all} {
		if ok, _ := l.Subscribe(waits, name, e); ok || waits.Err() != nil {
			t.Errorf("%q is answered %v, %v", name, ok, waits.Err())
		}
	}
	if state := l.State(); !state.Up || state.Err == nil {
		t.Errorf("with refused channels: %+v", state)
	}
	js := admin(t, "nats://mouth:hunter3@"+server.Addr())
	if err := js.Conn().Publish("mine", []byte("1")); err != nil {
		t.Fatal(err)
	}
	mine.wants(t, "1")

	reconfigure(t, server, "[mine]", "[mine, yours]")
	eventually(t, func() bool { return slices.Contains(yours.all(), wasResumed) })
	if err := js.Conn().Publish("yours", []byte("2")); err != nil {
		t.Fatal(err)
	}
	yours.wants(t, wasResumed, "2")
	all.wants(t)
}

// A person's tail has wildcards, and is told of an outage.
func TestTail(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	js := admin(t, server.URL())
	said, enough := make(chan string, 100), errors.New("enough")
	done := make(chan error, 1)
	go func() {
		done <- Driver().Tail(t.Context(), server.URL(), []string{"a.*", "b", "b"}, sink.Tail{
			Subscribed: func(channels []string) { said <- strings.Join(channels, " ") },
			Lost:       func(error) { said <- wasLost },
			Message: func(channel, payload string) error {
				said <- channel + "=" + payload
				if payload == "end" {
					return enough
				}
				return nil
			},
		})
	}()
	wants := func(want string) {
		t.Helper()
		select {
		case got := <-said:
			if got != want {
				t.Fatalf("said %q, want %q", got, want)
			}
		case <-time.After(testenv.Patience):
			t.Fatalf("nothing said, want %q", want)
		}
	}
	say := func(subject, text string) {
		t.Helper()
		eventually(t, func() bool { return js.Conn().IsConnected() })
		if err := js.Conn().Publish(subject, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	wants("a.* b")
	say("a.1", "x")
	wants("a.1=x")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	wants(wasLost)
	wants("a.* b")
	say("b", "end")
	wants("b=end")
	if err := <-done; !errors.Is(err, enough) {
		t.Errorf("ended with %v", err)
	}
	if err := Driver().Tail(t.Context(), "nats://127.0.0.1:1", []string{"a"}, sink.Tail{}); err == nil {
		t.Error("tails a server that is not there")
	}
}
