package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

// A subject without a stream is told from JetStream that is off, also where somebody hears the
// subject and no stream acknowledges.
func TestNoStream(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	s, js := open(t, server, Config{})
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	d, next, other := newEvent(t, "orders.placed", 1), newEvent(t, "s", 1), newEvent(t, "s", 2)
	batch := []outbox.Delivery{d, next, other}
	wants := func(got []outbox.Result, duplicate bool) {
		t.Helper()
		class(t, got[0], outbox.ClassRetryable, `nats stream add NAME --subjects "orders.placed"`)
		class(t, got[0], outbox.ClassRetryable, "create=NAME&subjects=orders.placed")
		class(t, got[1], outbox.ClassNotAttempted, "")
		if got[2] != (outbox.Result{Duplicate: duplicate}) {
			t.Errorf("of another key: %+v", got[2])
		}
	}
	wants(s.Publish(t.Context(), batch), false)

	conn, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	heard, err := conn.SubscribeSync("orders.placed")
	if err := errors.Join(err, conn.Flush()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	wants(s.Publish(ctx, batch), true)
	if m, err := heard.NextMsg(time.Second); err != nil || m.Header.Get(eventID) != d.ID.String() {
		t.Errorf("the fault did not strike: heard %v, %v", m, err) // it was heard, and nobody acknowledged
	}

	stream(t, js, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	deliver(t, s, d, next)
	if err := js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	class(t, s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "s", 1)})[0], outbox.ClassRetryable, "no stream has it")
}

func TestJetStreamIsOff(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoJetStream: true})
	s := openURL(t, server.URL(), Config{})
	class(t, s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "s", 1)})[0], outbox.ClassUnavailable, "not enabled")
	_, err := Open(t.Context(), server.URL()+"?create=S&subjects=s", Config{})
	class(t, outbox.Result{Err: err}, outbox.ClassUnavailable, "create stream S")
}

const users = `authorization { users: [
	{ user: relay, password: hunter2, permissions: {
		publish: { allow: [PUBLISH], deny: ["s.denied"] }, subscribe: [SUBSCRIBE] } },
	{ user: admin, password: hunter3 } ] }`

// A user's rights: what he may not publish fails by itself, the rest goes out; without its inbox
// nothing does. The least rights of the package comment suffice.
func TestRights(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("PUBLISH", `"s.>", "$JS.API.STREAM.NAMES"`, "SUBSCRIBE", `"_INBOX.>"`).Replace(users)
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true, Text: text})
	js := admin(t, "nats://admin:hunter3@"+server.Addr())
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	s := openURL(t, "nats://relay:hunter2@"+server.Addr(), Config{})
	var handled atomic.Int64 // by the connection's own handler
	conn, err := nats.Connect("nats://relay:hunter2@"+server.Addr(), nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { handled.Add(1) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	theirs, err := New(conn, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]sink.Sink{"Open": s, "New": theirs} {
		bad, behind, other := newEvent(t, "s.denied", 1), newEvent(t, "s.a", 1), newEvent(t, "s.a", 2)
		got := s.Publish(t.Context(), []outbox.Delivery{bad, behind, other})
		class(t, got[0], outbox.ClassRetryable, "may not publish")
		class(t, got[1], outbox.ClassNotAttempted, "")
		if got[2] != (outbox.Result{}) {
			t.Errorf("%s: of another key: %+v", name, got[2])
		}
		class(t, s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "s.denied", 1)})[0], outbox.ClassRetryable, "may not")
		if err := s.Abilities().Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}

	eventually(t, func() bool { return handled.Load() == 2 })

	// Without the right to ask, a missing stream is a guess that says so.
	if err := js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	reconfigure(t, server, `, "$JS.API.STREAM.NAMES"`, "")
	eventually(t, func() bool {
		res := s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "s.a", 1)})[0]
		c, _ := outbox.Classify(res.Err)
		return c == outbox.ClassRetryable && strings.Contains(res.Err.Error(), "$JS.API.STREAM.NAMES is denied")
	})

	// Without the inbox, nothing is known to arrive.
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	reconfigure(t, server, `"_INBOX.>"`, `"other"`)
	var deaf sink.Sink
	eventually(t, func() (ok bool) { // while it reads its configuration, a server may know nobody
		deaf, err = Open(t.Context(), "nats://relay:hunter2@"+server.Addr(), Config{})
		return err == nil
	})
	defer func() { _ = deaf.Close() }()
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		res := deaf.Publish(ctx, []outbox.Delivery{newEvent(t, "s.a", 1)})[0]
		c, _ := outbox.Classify(res.Err)
		return c == outbox.ClassUnavailable && strings.Contains(res.Err.Error(), "allow it to subscribe to _INBOX.>")
	})
	reconfigure(t, server, `"other"`, `"_INBOX.>"`)
	deliverAtLast(t, deaf, newEvent(t, "s.a", 1))
}

func reconfigure(t *testing.T, server *testenv.NATS, from, to string) {
	t.Helper()
	text, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, from) {
		t.Fatalf("%q is not in the configuration", from)
	}
	if err := errors.Join(server.Configure(strings.Replace(text, from, to, 1)), server.Reload()); err != nil {
		t.Fatal(err)
	}
}

// A password that is refused stops the program that opens the sink, and makes one that runs wait
// for as long as it is.
func TestPassword(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true,
		Text: `authorization { users: [ { user: relay, password: hunter2 }, { user: admin, password: other } ] }`})
	js := admin(t, "nats://admin:other@"+server.Addr())
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	sinktest.Opens(t, Driver(), map[string]sinktest.Opening{
		"nats://relay:hunter9@" + server.Addr(): {Hint: "password"},
		"nats://hunter9@" + server.Addr():       {Hint: "password"},
		"nats://" + server.Addr():               {Hint: "password"},
		"nats://relay:hunter9@127.0.0.1:1":      {Waits: true, Hint: "is a NATS server running there?"},
		"tls://relay:hunter9@" + server.Addr():  {Hint: "has no TLS"},
	})

	s := openURL(t, "nats://relay:hunter2@"+server.Addr(), Config{})
	deliver(t, s, newEvent(t, "s", 1))
	reconfigure(t, server, "hunter2", "changed")
	refused := 0
	eventually(t, func() bool {
		res := s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "s", 1)})[0]
		if res.Err != nil {
			class(t, res, outbox.ClassUnavailable, "")
			if strings.Contains(res.Err.Error(), "hunter") {
				t.Errorf("the password is in %v", res.Err)
			}
			refused++
		}
		return refused == 5 // a client that reconnects by itself has given up by now
	})
	reconfigure(t, server, "changed", "hunter2")
	deliverAtLast(t, s, newEvent(t, "s", 1))
}

// Who is asked to makes the stream, once; one that is there stays as it is.
func TestCreate(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	js := admin(t, server.URL())
	url := server.URL() + "?create=ORDERS&subjects=orders.>,order"
	s := openURL(t, url, Config{Window: time.Minute})
	deliver(t, s, newEvent(t, "orders.placed", 1), newEvent(t, "order", 1))
	created, err := js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	if c := created.CachedInfo().Config; c.Duplicates != time.Minute || c.Storage != jetstream.FileStorage ||
		fmt.Sprint(c.Subjects) != "[orders.> order]" {
		t.Errorf("created %+v", c)
	}
	stream(t, js, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.placed"}})
	deliver(t, openURL(t, url, Config{}), newEvent(t, "orders.placed", 1))
	if created, err = js.Stream(t.Context(), "ORDERS"); err != nil || len(created.CachedInfo().Config.Subjects) != 1 {
		t.Errorf("the stream was changed: %+v, %v", created.CachedInfo().Config, err)
	}
	_, err = Open(t.Context(), server.URL()+"?create=OTHER&subjects=orders.>", Config{})
	class(t, outbox.Result{Err: err}, outbox.ClassPermanent, "overlap")
}
