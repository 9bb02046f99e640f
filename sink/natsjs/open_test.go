package natsjs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinkurl"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"nats://h": "", "nats://u:p@h:4222": "", "nats://token@h": "", "tls://h1,h2:4223": "", "nats://[::1]:4222/": "",
		"NATS://h?cloudevents=binary": "", "nats://h?create=S&subjects=a.>,b&replicas=3": "",
		"nats://h?creds=/run/u.creds": "",
		"nats://u:hunter2@h:x":        "not of the form", "nats://u:hunter2@h:99999": "65535", "nats://h:0": "65535",
		"nats://u:hunt/er2@h": "%2F", "nats://u:hunter2@h/path": "not of the form", "nats://u:hunter2@h#x": "not of the form",
		"nats://u:hunter2@": "not of the form", "nats://u:hunter2@h1,": "not of the form", "nats://": "not of the form",
		"nats://u:hunter2%zz@h": "not of the form", "ws://u:hunter2@h": "not of the form",
		"nats://h?hunter2=1": "none of", "nats://h?cloudevents=hunter2": "none of structured",
		"nats://h?cloudevents=binary&cloudevents=x": "twice",
		"nats://h?create=S":                         "lacks Subjects", "nats://h?subjects=a": "lacks Name",
		"nats://h?create=a.b&subjects=a": "no stream's name",
		"nats://h?create=S&subjects=a,":  "an empty one", "nats://h?create=S&subjects=a&replicas=9": "1 to 5",
		"nats://u:hunter2@h?creds=f": "both",
	} {
		err := checkURL(url)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want %q", url, err, says)
		}
		if masked := sinkurl.Mask(url); strings.Contains(masked, "hunter2") {
			t.Errorf("%s is shown as %s", url, masked)
		}
	}
}

func TestPlaintext(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"nats://broker:4222": "[broker]", "nats://u:p@10.0.0.7,localhost,127.0.0.1:1,b": "[10.0.0.7 b]",
		"nats://[2001:db8::1]:4222": "[2001:db8::1]", "nats://[::1]": "[]", "tls://broker": "[]", "nats://u:p/@h": "[]",
	} {
		if got := fmt.Sprint(plaintext(url)); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			cancel()
			<-t.Context().Done()
			_ = conn.Close()
		}
	}()
	_, err = Open(ctx, "nats://u:hunter2@"+listener.Addr().String(), Config{})
	class(t, outbox.Result{Err: err}, outbox.ClassUnavailable, "connect to NATS")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Who nobody vouches for is not waited for, and a private authority is given by Config.
func TestTLS(t *testing.T) {
	t.Parallel()
	roots, certificate, key := certificates(t)
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true,
		Text: fmt.Sprintf("tls { cert_file: %q, key_file: %q }", certificate, key)})
	_, err := Driver().Open(t.Context(), "tls://"+server.Addr(), sink.Options{})
	if c, _ := outbox.Classify(err); c != outbox.ClassPermanent || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
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

// certificates makes one for 127.0.0.1 that vouches for itself.
func certificates(t *testing.T) (roots *x509.CertPool, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().
			Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	pemCertificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(certificate, pemCertificate, 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600)); err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(pemCertificate)
	return roots, certificate, key
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
