package integration

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/gateway"
)

// smallWindow is an HTTP client that receives little ahead of what is read. Less than 32 KiB, of
// which TCP announces half, would be less than the loopback's segments, and then every write waits
// for a timer.
func smallWindow(t *testing.T) *http.Client {
	dialer := &net.Dialer{}
	transport := &http.Transport{
		ReadBufferSize: 512,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err == nil {
				err = conn.(*net.TCPConn).SetReadBuffer(32 << 10)
			}
			return conn, err
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// A client that receives a few bytes for a while and then everything gets all of it on one
// connection, from the log where memory has moved on. The others do not wait for it: they have all
// of the run while it is still at its beginning.
func TestSlowClientDelaysNobody(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	s.deliverRuns(t)
	// A busy machine takes longer to write the run.
	n := s.serve(t, func(cfg *gateway.Config) { cfg.Streams.WriteTimeout = 2 * time.Minute })
	run := s.start(t)
	slow := &client{nodes: []string{n.server.URL}, run: run, http: smallWindow(t)}
	fast := &client{nodes: []string{n.server.URL}, run: run}
	release := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := slow.connectThrough(context.WithoutCancel(t.Context()), never,
			func(body io.Reader) io.Reader { return &dripping{body, release} })
		done <- err
	}()
	eventually(t, "the slow client is there", func() bool { return n.hub.Stats().Readers == 1 })
	go func() {
		for range 150 {
			s.append(t, run, 10, 600)
		}
		s.complete(t, run)
	}()
	if _, err := fast.follow(t.Context(), rand.New(rand.NewPCG(1, 1)), uncut); err != nil {
		t.Fatal(err)
	}
	if got := n.StreamStats().Connections; got != 1 {
		t.Fatalf("%d connections are open, want that of the slow client: the test did not meet what it is for", got)
	}
	before := n.hub.Stats().FromLog
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := newRecord(s.logOf(t, run))
	for name, c := range map[string]*client{"slow": slow, "fast": fast} {
		if err := want.check(c); err != nil {
			t.Errorf("the %s client: %v", name, err)
		}
	}
	if got := n.hub.Stats().FromLog - before; got < 200 {
		t.Errorf("%d events were read from the log for the slow client, want many more: memory keeps 512 of 1502", got)
	}
	if slow.connections != 1 || n.StreamStats().Slow != 0 {
		t.Errorf("%d connections, %d cut off: the slow client received enough to be kept", slow.connections,
			n.StreamStats().Slow)
	}
}

// dripping hands on a byte at a time, with a pause, until release is closed.
type dripping struct {
	io.Reader
	release chan struct{}
}

func (d *dripping) Read(b []byte) (int, error) {
	select {
	case <-d.release:
	case <-time.After(200 * time.Millisecond):
		b = b[:1]
	}
	return d.Reader.Read(b)
}

// A client that receives nothing is cut off after the time for a write, and counted; with its
// cursor it gets the rest.
func TestStalledClientIsCutOff(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	n := s.serve(t, func(cfg *gateway.Config) { cfg.Streams.WriteTimeout = 300 * time.Millisecond })
	run := s.start(t)
	for range 4 {
		s.append(t, run, 250, 1000)
	}
	s.complete(t, run)
	c := &client{nodes: []string{n.server.URL}, run: run, http: smallWindow(t)}
	status, err := c.connectThrough(t.Context(), never, func(body io.Reader) io.Reader {
		eventually(t, "the gateway gives up", func() bool { return n.StreamStats().Slow == 1 })
		return body
	})
	if status != http.StatusOK || err == nil {
		t.Fatalf("the stream of a client that receives nothing: %d, %v, want it to break", status, err)
	}
	if len(c.got) == 0 || len(c.got) > 900 {
		t.Errorf("%d events had been sent, want some and by far not all", len(c.got))
	}
	c.http = nil
	if _, err := c.follow(t.Context(), rand.New(rand.NewPCG(1, 1)), uncut); err != nil {
		t.Fatal(err)
	}
	if err := newRecord(s.logOf(t, run)).check(c); err != nil {
		t.Error(err)
	}
	if stats := n.StreamStats(); stats.Slow != 1 || stats.Connections != 0 {
		t.Errorf("stats %+v, want one slow client and nobody left", stats)
	}
}
