package natsjs

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// script answers publishers in the place of a stream, when and what a test wants: a real one
// refuses a message and takes the next in states that no test can hold it in.
type script struct {
	t       *testing.T
	mu      sync.Mutex
	arrived []*nats.Msg
}

func newScript(t *testing.T, server *testenv.NATS, subject string) *script {
	t.Helper()
	s := &script{t: t}
	conn := admin(t, server.URL()).Conn()
	if _, err := conn.Subscribe(subject, func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.arrived = append(s.arrived, m)
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

// next waits for n messages, and returns the ids of their events and what answers them.
func (s *script) next(n int) (ids []string, reply func(text string)) {
	s.t.Helper()
	eventually(s.t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.arrived) >= n })
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.arrived
	s.arrived = nil
	for _, m := range taken {
		ids = append(ids, m.Header.Get(eventID))
	}
	return ids, func(text string) {
		for _, m := range taken {
			if err := m.Respond([]byte(text)); err != nil {
				s.t.Error(err)
			}
		}
	}
}

const taken = `{"stream":"S","seq":1}`

// Different keys and events without one are in flight together, of one key an event with all its
// destinations, and nothing follows what a stream refused although it would take the next.
func TestOneEventOfAKeyInFlight(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoJetStream: true})
	s := openURL(t, server.URL(), Config{})
	peer := newScript(t, server, "s.>")
	a1, a2, a3, b1 := newEvent(t, "s.1", 1), newEvent(t, "s.1", 1), newEvent(t, "s.1", 1), newEvent(t, "s.1", 2)
	free1, free2 := newEvent(t, "s.1", 1), newEvent(t, "s.1", 1)
	free1.Keyed, free2.Keyed = false, false
	a1too, a2too := a1, a2
	a1too.Destination, a2too.Destination = "s.2", "s.2"
	batch := []outbox.Delivery{a1, a1too, a2, a2too, a3, b1, free1, free2}
	results := make(chan []outbox.Result, 1)
	go func() { results <- s.Publish(t.Context(), batch) }()

	ids, reply := peer.next(5)
	want := []string{a1.ID.String(), a1.ID.String(), b1.ID.String(), free1.ID.String(), free2.ID.String()}
	if !slices.Equal(ids, want) {
		t.Fatalf("first in flight: %q, want %q", ids, want)
	}
	reply(taken)
	ids, reply = peer.next(2)
	if want := []string{a2.ID.String(), a2.ID.String()}; !slices.Equal(ids, want) {
		t.Fatalf("then in flight: %q, want %q", ids, want)
	}
	reply(`{"error":{"code":400,"err_code":10109,"description":"invalid operation on sealed stream"}}`)
	got := <-results
	for i, res := range got {
		switch i {
		case 2, 3:
			class(t, res, outbox.ClassRetryable, "sealed")
		case 4:
			if !errors.Is(res.Err, outbox.ErrNotAttempted) {
				t.Errorf("behind the failed event: %+v", res)
			}
		default:
			if res != (outbox.Result{}) {
				t.Errorf("delivery %d is answered %+v", i, res)
			}
		}
	}
}

// What the answers of JetStream mean for an event. The codes are those of nats-server's
// errors.json.
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoJetStream: true})
	s := openURL(t, server.URL(), Config{})
	peer := newScript(t, server, "s.>")
	for _, tt := range []struct {
		code, err int
		text      string
		class     outbox.Class
	}{
		{400, 10054, "message size exceeds maximum allowed", outbox.ClassPermanent},
		{400, 10097, "header size exceeds maximum allowed of 64k", outbox.ClassPermanent},
		{429, 10167, "too many requests", outbox.ClassUnavailable},
		{409, 10158, "duplicate message id is in process", outbox.ClassUnavailable},
		{503, 10077, "maximum messages exceeded", outbox.ClassUnavailable},
		{503, 10077, "maximum bytes exceeded", outbox.ClassUnavailable},
		{503, 10077, "maximum messages per subject exceeded", outbox.ClassRetryable},
		{503, 10023, "insufficient resources", outbox.ClassUnavailable},
		{400, 10002, "resource limits exceeded for account", outbox.ClassUnavailable},
		{400, 10109, "invalid operation on sealed stream", outbox.ClassRetryable},
	} {
		results := make(chan []outbox.Result, 1)
		go func() { results <- s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "s.1", 1)}) }()
		_, reply := peer.next(1)
		reply(
			fmt.Sprintf(`{"error":{"code":%d,"err_code":%d,"description":%q},"stream":"S","seq":0}`, tt.code, tt.err, tt.text),
		)
		class(t, (<-results)[0], tt.class, tt.text)
	}
	results := make(chan []outbox.Result, 1)
	go func() { results <- s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "s.1", 1)}) }()
	_, reply := peer.next(1)
	reply("hello")
	class(t, (<-results)[0], outbox.ClassRetryable, "no stream")
}
