package sinktest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Certificate makes one for 127.0.0.1 that vouches for itself, and its files in dir.
func Certificate(t testing.TB, dir string) (roots *x509.CertPool, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := errors.Join(os.WriteFile(certFile, certificate, 0o644), os.WriteFile(keyFile,
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o644)); err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots, certFile, keyFile
}

// FreePort returns a port of 127.0.0.1 that nobody listens on.
func FreePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err := errors.Join(err, listener.Close()); err != nil {
		t.Fatal(err)
	}
	return port
}

// Serve serves connections at the address that it returns until the test and all that it cleans up
// have ended.
func Serve(t testing.TB, serve func(conn net.Conn)) (address string) {
	t.Helper()
	return listen(t, func(_ context.Context, conn net.Conn) { serve(conn) })
}

// listen is Serve with a context that ends when the test does. It outlives the test's own, which
// ends before a sink is closed.
func listen(t testing.TB, serve func(ctx context.Context, conn net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() {
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				serve(ctx, conn)
				stop()
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() { cancel(); _ = listener.Close(); running.Wait() })
	return listener.Addr().String()
}

// Proxy stands between a sink and its server.
type Proxy struct {
	Addr string
	// LoseReply has the next reply closed with its connection instead of being passed on, once.
	LoseReply atomic.Bool
	// Swallow drops what the server says, and Dropped counts its bytes.
	Swallow atomic.Bool
	Dropped atomic.Int64
	Held    atomic.Int64 // reads that Stall holds back

	inspect func(total int, piece []byte) bool

	mu      sync.Mutex
	conns   []net.Conn
	stalled chan struct{} // closed when it goes on; nil while it does
}

// NewProxy returns the way to a server. Inspect, if there is one, is asked about each piece of a
// connection's requests, of which so many bytes have come since the last reply; false closes the
// connection.
func NewProxy(t testing.TB, server string, inspect ...func(total int, piece []byte) bool) *Proxy {
	t.Helper()
	p := &Proxy{}
	for _, f := range inspect {
		p.inspect = f
	}
	p.Addr = listen(t, func(ctx context.Context, near net.Conn) {
		far, err := net.Dial("tcp", server)
		if err != nil {
			return // the server is away
		}
		stop := context.AfterFunc(ctx, func() { _ = far.Close() })
		defer stop()
		p.mu.Lock()
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		var total atomic.Int64 // bytes since the last reply
		var requests sync.WaitGroup
		requests.Go(func() {
			p.pass(ctx, far, near, func(piece []byte) bool {
				so := int(total.Add(int64(len(piece))))
				return p.inspect == nil || p.inspect(so, piece)
			})
		})
		p.pass(ctx, toward{p, near}, far, func([]byte) bool {
			total.Store(0)
			return !p.LoseReply.CompareAndSwap(true, false)
		})
		requests.Wait()
	})
	return p
}

// toward is the way from the server.
type toward struct {
	*Proxy
	net.Conn
}

// Write implements io.Writer.
func (c toward) Write(b []byte) (int, error) {
	if c.Swallow.Load() {
		c.Dropped.Add(int64(len(b)))
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// pass passes on what comes, until either side closes or ok is false. Both are closed then.
func (p *Proxy) pass(
	ctx context.Context, to io.WriteCloser, from io.ReadCloser, ok func(piece []byte) bool,
) {
	defer to.Close()
	defer from.Close()
	reply := make([]byte, 64<<10)
	for {
		n, err := from.Read(reply)
		if err != nil {
			return
		}
		p.mu.Lock()
		stalled := p.stalled
		p.mu.Unlock()
		if stalled != nil {
			p.Held.Add(1)
			select {
			case <-stalled:
			case <-ctx.Done():
			}
		}
		if !ok(reply[:n]) {
			return
		}
		if _, err := to.Write(reply[:n]); err != nil {
			return
		}
	}
}

// Cut breaks all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

// Stall holds back what comes, from either side.
func (p *Proxy) Stall() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stalled := make(chan struct{})
	p.stalled = stalled
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stalled = nil
		close(stalled)
	})
}
