package natsjs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	sinktest.URLs{
		Check: map[string]string{
			"nats://h": "", "nats://u:p@h:4222": "", "nats://token@h": "", "tls://h1,h2:4223": "", "nats://[::1]:4222/": "",
			"NATS://h?cloudevents=binary": "", "nats://h?create=S&subjects=a.>,b&replicas=3": "",
			"nats://h?creds=/run/u.creds": "",
			"nats://u:hunter2@h:x":        "not of the form", "nats://u:hunter2@h:99999": "65535", "nats://h:0": "65535",
			"nats://u:hunt/er2@h": "%2F", "nats://u:hunter2@h/path": "not of the form",
			"nats://u:hunter2@h#x": "not of the form",
			"nats://u:hunter2@":    "not of the form", "nats://u:hunter2@h1,": "not of the form", "nats://": "not of the form",
			"nats://u:hunter2%zz@h": "not of the form", "ws://u:hunter2@h": "not of the form",
			"nats://h?hunter2=1": "none of", "nats://h?cloudevents=hunter2": "none of structured",
			"nats://h?cloudevents=binary&cloudevents=x": "twice",
			"nats://h?create=S":                         "lacks Subjects", "nats://h?subjects=a": "lacks Name",
			"nats://h?create=a.b&subjects=a": "no stream's name",
			"nats://h?create=S&subjects=a,":  "an empty one", "nats://h?create=S&subjects=a&replicas=9": "1 to 5",
			"nats://u:hunter2@h?creds=f": "both",
		},
		Plaintext: map[string]string{
			"nats://broker:4222": "broker", "nats://u:p@10.0.0.7,localhost,127.0.0.1:1,b": "10.0.0.7 b",
			"nats://[2001:db8::1]:4222": "2001:db8::1", "nats://[::1]": "", "tls://broker": "", "nats://u:p/@h": "",
		},
	}.Test(t, Driver())
}

func TestConfigProblems(t *testing.T) {
	t.Parallel()
	buffers, err := nats.Connect(testenv.NATSServer(t, testenv.NATSConfig{NoJetStream: true}).URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(buffers.Close)
	_, err = New(buffers, Config{Window: time.Millisecond, TLS: &tls.Config{}, Create: Stream{Name: "S"}})
	for _, want := range []string{"ReconnectBufSize(-1)", "Window is 1ms", "TLS is for Open", "Create lacks Subjects"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: got %v, want %q", err, want)
		}
	}
	if _, err = New(nil, Config{}); err == nil {
		t.Error("New takes no connection")
	}
	_, err = Open(t.Context(), "nats://h?cloudevents=x", Config{Window: time.Millisecond})
	for _, want := range []string{"none of structured", "Window is 1ms"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open: got %v, want %q", err, want)
		}
	}
	_, err = Open(t.Context(), "nats://h", Config{TLS: &tls.Config{}})
	if err == nil || !strings.Contains(err.Error(), "not tls://") {
		t.Errorf("Open with TLS for nats://: %v", err)
	}
}

// A server that takes connections and says nothing, and a context that ends: opening ends with it.
func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	address := sinktest.Serve(t, func(net.Conn) {
		cancel()
		<-t.Context().Done()
	})
	_, err := Open(ctx, "nats://u:hunter2@"+address, Config{})
	class(t, outbox.Result{Err: err}, outbox.ClassUnavailable, "connect to NATS")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Who nobody vouches for is not waited for, and a private authority is given by Config.
func TestTLS(t *testing.T) {
	t.Parallel()
	roots, certificate, key := sinktest.Certificate(t, t.TempDir())
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true,
		Text: fmt.Sprintf("tls { cert_file: %q, key_file: %q }", certificate, key)})
	_, err := Driver().Open(t.Context(), "tls://"+server.Addr(), sink.Options{})
	wantClass(t, err, outbox.ClassPermanent, "certificate")
	s, err := Open(t.Context(), "tls://"+server.Addr()+"?create=S&subjects=s", Config{TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, s, newEvent(t, "s", 1))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	class(t, s.Publish(t.Context(), []outbox.Delivery{newEvent(t, "s", 1)})[0], outbox.ClassUnavailable, "closed")
}

// A connection of one's own reconnects by itself, and a sink on it goes on.
func TestNew(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	js := admin(t, server.URL())
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	conn, err := nats.Connect(server.URL(), nats.ReconnectBufSize(-1), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(conn, Config{})
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, s, newEvent(t, "s", 1))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	d := newEvent(t, "s", 1)
	class(t, s.Publish(t.Context(), []outbox.Delivery{d})[0], outbox.ClassUnavailable, "")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	deliverAtLast(t, s, d)
	if err := s.Close(); err != nil || conn.IsClosed() {
		t.Errorf("Close: %v, and the caller's connection is closed: %v", err, conn.IsClosed())
	}
	conn.Close()
	class(t, s.Publish(t.Context(), []outbox.Delivery{d})[0], outbox.ClassUnavailable, "closed")
}
