package kafka

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// gate keeps the client from writing while records are appended to it.
//
// The client sends what a partition has whenever it finds the time, also in the middle of a loop
// that appends. The first events of a key could be sent, and refused, before a later one is
// appended. That one would be published although an earlier one was not. Behind a closed gate all
// of them are appended before any is written, and the client fails what a partition has as a whole.
type gate struct{ mu sync.RWMutex }

// closed runs append while nothing is written.
func (g *gate) closed(appendAll func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	appendAll()
}

// pass waits until the gate is open. A write that began before the gate was closed goes on: it has
// nothing of what is being appended.
func (g *gate) pass() {
	g.mu.RLock()
	defer g.mu.RUnlock()
}

// conn is a connection behind the gate.
type conn struct {
	net.Conn
	gate *gate
}

// Write implements net.Conn.
func (c conn) Write(b []byte) (int, error) {
	c.gate.pass()
	return c.Conn.Write(b)
}

// dialer returns what the client connects with.
func (g *gate) dialer(cfg Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		gated := conn{plain, g}
		if cfg.TLS == nil {
			return gated, nil
		}
		settings := cfg.TLS.Clone()
		if settings.ServerName == "" {
			settings.ServerName, _, _ = net.SplitHostPort(address)
		}
		secured := tls.Client(gated, settings)
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = plain.Close() // of no use any more
			return nil, err
		}
		return secured, nil
	}
}
