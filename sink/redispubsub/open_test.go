package redispubsub

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// Every kind of mistake in a URL with a password, and none of the errors has a piece of it.
func TestPasswordStaysOutOfErrors(t *testing.T) {
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	do(t, admin, "CONFIG", "SET", "requirepass", "right")
	for _, url := range []string{
		"redis://user:hunter/65432@" + server.Addr(),
		"redis://user:65432/hunter@" + server.Addr(),
		"redis://user:65432#hunter@" + server.Addr(), // a host named user, a port out of the password
		"redis://user:65432?hunter@" + server.Addr(),
		"redis://user:hunter%zz@" + server.Addr(),
		"redis://user:hunter@@h:port",
		"redis://user:hunter@h:1,h:port",
		"redis://user:hunter@h:1,h:2/3",
		"redis://user:hunter@h:1/three",
		"redis://user:hunter@h:1?hunter=1",
		"redis://user:hunter@h:1?db=hunter",
		"http://user:hunter@h:1",
		"user:hunter@h:1",
		"\x7fredis://user:hunter@h",
		"redis://:hunter@" + server.Addr(),     // wrong
		"redis://user:hunter@" + server.Addr(), // unknown user
		"redis://user:hunter@127.0.0.1:1",      // nobody listens
		"unix://user:hunter@/no/such/socket",
		"redis://user:hunter@127.0.0.1:1,127.0.0.1:2",
		"redis://user:hunter@" + startParrot(t),
	} {
		sink, err := Open(t.Context(), url, Config{})
		if err == nil {
			t.Errorf("%s: no error", url)
			_ = sink.Close()
			continue
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if text := e.Error(); strings.Contains(text, "hunter") || strings.Contains(text, "65432") {
				t.Errorf("%s: the error is %q", url, text)
			}
		}
	}
}

// startParrot runs a server that answers every command with an error that repeats it, as proxies do with what they do
// not know.
func startParrot(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
			commands := bufio.NewScanner(conn)
			var words []string
			for commands.Scan() {
				words = append(words, commands.Text())
				if word := commands.Text(); word == "hunter" || word == "lib-name" {
					_, _ = conn.Write([]byte("-ERR unknown command, with args beginning with: " + strings.Join(words, " ") + "\r\n"))
				}
			}
			stop()
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return listener.Addr().String()
}

func TestConfigProblemsAllAtOnce(t *testing.T) {
	_, err := Open(t.Context(), "nonsense", Config{Window: time.Microsecond, Prefix: "a{b}"})
	if err == nil || !strings.Contains(err.Error(), "Window") || !strings.Contains(err.Error(), "Prefix") ||
		!strings.Contains(err.Error(), "URL") {
		t.Errorf("Open: %v", err)
	}
	if _, err = Open(t.Context(), "redis://h", Config{TLS: &tls.Config{}}); err == nil ||
		!strings.Contains(err.Error(), "rediss://") {
		t.Errorf("Open with TLS that the URL does not ask for: %v", err)
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	if _, err = New(ring, Config{Window: 1, TLS: &tls.Config{}}); err == nil || !strings.Contains(err.Error(), "Window") ||
		!strings.Contains(err.Error(), "Ring") || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("New: %v", err)
	}
	if _, err = New(nil, Config{}); err == nil {
		t.Error("New takes a nil client")
	}
}

func TestOpenNeedsAPassword(t *testing.T) {
	server := testenv.RedisServer(t)
	do(t, connectAdmin(t, server), "CONFIG", "SET", "requirepass", "right")
	_, err := Open(t.Context(), server.URL(), Config{})
	if class, _ := outbox.Classify(err); class != outbox.ClassUnavailable || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("Open: %v", err)
	}
	deliver(t, openURL(t, "redis://:right@"+server.Addr()+"/7", Config{}), event(t, "c", 1))
}

func TestUnixSocket(t *testing.T) {
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	do(t, admin, "ACL", "SETUSER", "me", "on", ">p/@ss", "~*", "&*", "+@all")
	sink := openURL(t, "unix://me:p%2F%40ss@"+server.Socket(), Config{Envelope: idEnvelope})
	sub := subscribe(t, admin, "c")
	d := event(t, "c", 1)
	deliver(t, sink, d)
	sub.want("c", ids(d)...)
}

func TestTLS(t *testing.T) {
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	ca, cert, key := certificates(t, server.Dir()) // the server's user can read there
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	do(t, admin, "CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", cert, "tls-auth-clients",
		"no", "tls-port", port)
	url := "rediss://127.0.0.1:" + port

	if _, err := Open(t.Context(), url, Config{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate nobody vouches for: %v", err)
	}
	sink := openURL(t, url, Config{TLS: &tls.Config{RootCAs: ca}, Envelope: idEnvelope})
	sub := subscribe(t, admin, "c")
	d := event(t, "c", 1)
	deliver(t, sink, d)
	sub.want("c", ids(d)...)
}

// certificates makes a self-signed one for 127.0.0.1.
func certificates(t *testing.T, dir string) (pool *x509.CertPool, certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(cert)
	return pool, write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER)
}
