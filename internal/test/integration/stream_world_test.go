package integration

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/store/postgres"
)

// streams is a world of its own for streams: gateways and relays in this process, as internal/app
// joins them, so that a test can look at their counts.
type streams struct {
	*world // without the subscriber
	pool   *pgxpool.Pool
	runs   *crawl.Service
	store  crawl.Store
	wake   atomic.Pointer[relay.Relay] // of crawl_outbox; nil: none runs
}

func newStreams(t *testing.T) *streams {
	t.Helper()
	s := &streams{world: &world{url: migrated(t), redis: testenv.RedisServer(t)}}
	cfg, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 8
	if s.pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	s.world.pool = s.pool
	store, err := pgstore.OpenRuns(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	s.store = waking{store, s}
	s.runs = crawl.NewService(s.store, crawl.ServiceConfig{})
	return s
}

// waking wakes the relay after each commit, as internal/app does.
type waking struct {
	crawl.Store
	streams *streams
}

func (w waking) Change(ctx context.Context, tenant string, run uuid.UUID, c crawl.Change) (crawl.Changed, error) {
	changed, err := w.Store.Change(ctx, tenant, run, c)
	if relay := w.streams.wake.Load(); relay != nil {
		relay.Wake("")
	}
	return changed, err
}

// deliver starts a relay of a table. It runs until stop is called or the test ends.
func (s *streams) deliver(t *testing.T, layout outbox.Layout, destination string) (stop func()) {
	t.Helper()
	db, err := postgres.Connect(t.Context(), s.url, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	sink, err := redispubsub.Open(t.Context(), s.redis.URL(), redispubsub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	template, err := outbox.ParseTemplate(destination)
	if err != nil {
		t.Fatal(err)
	}
	relay, err := relay.New(db, sink, relay.Config{
		Tables: []relay.Table{{Layout: layout, Destination: template}}, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	end := inBackground(t, relay.Run)
	if layout.Table == outbox.CrawlOutbox().Table {
		s.wake.Store(relay)
	}
	stop = sync.OnceFunc(func() {
		s.wake.CompareAndSwap(relay, nil)
		end()
		_ = sink.Close()
		db.Close()
	})
	t.Cleanup(stop)
	return stop
}

func (s *streams) deliverRuns(t *testing.T) (stop func()) {
	t.Helper()
	return s.deliver(t, outbox.CrawlOutbox(), "run:{key}")
}

// quiet drops what is said about the faults that these tests bring about.
var quiet = slog.New(slog.DiscardHandler)

// inBackground runs run until end is called, which waits for it, or the test ends.
func inBackground(t *testing.T, run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	}()
	end = func() {
		cancel()
		<-done
	}
	t.Cleanup(end)
	return end
}

// node is one gateway with its HTTP server.
type node struct {
	*gateway.Gateway
	hub    *stream.Hub
	live   *heard
	server *httptest.Server
}

// heard counts what a Subscriber is sent.
type heard struct {
	sink.Subscriber
	messages atomic.Uint64
}

func (h *heard) Subscribe(ctx context.Context, channel string, l outbox.Listener) (bool, func()) {
	return h.Subscriber.Subscribe(ctx, channel, &counted{Listener: l, messages: &h.messages})
}

type counted struct {
	outbox.Listener
	messages *atomic.Uint64
}

func (c *counted) Message(message []byte) {
	c.messages.Add(1)
	c.Listener.Message(message)
}

// serve starts a gateway. edit changes its configuration, which is without authentication.
func (s *streams) serve(t *testing.T, edit func(*gateway.Config)) *node {
	t.Helper()
	n := &node{}
	live, err := redispubsub.OpenListener(s.redis.URL(),
		redispubsub.ListenerConfig{PingEvery: 300 * time.Millisecond, DeadAfter: time.Second, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	n.live = &heard{Subscriber: live}
	n.hub = stream.New(gateway.Log(s.store, 6), n.live, stream.Config{Logger: quiet})
	cfg := gateway.Config{Runs: s.runs, Hub: n.hub, Logger: quiet}
	if edit != nil {
		edit(&cfg)
	}
	if n.Gateway, err = gateway.New(cfg); err != nil {
		t.Fatal(err)
	}
	endLive, endHub := inBackground(t, n.live.Run), inBackground(t, n.hub.Run)
	n.server = httptest.NewUnstartedServer(n.Handler())
	n.server.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelError) // connections that are cut
	n.server.Listener = smallBuffers{n.server.Listener}
	n.server.Start()
	t.Cleanup(func() {
		n.server.CloseClientConnections()
		n.server.Close()
		endHub()
		endLive()
	})
	eventually(t, "the gateway listens to Redis", func() bool { return n.live.State().Up })
	return n
}

// smallBuffers has the kernel keep little for a client that does not receive, else a megabyte would
// have to be sent before a gateway knows of it.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(32 << 10)
	}
	return conn, err
}

// start makes a RUNNING run, whose event 1 is RUN_STARTED.
func (s *streams) start(t *testing.T) uuid.UUID {
	t.Helper()
	return s.startOf(t, crawl.DefaultTenant)
}

func (s *streams) startOf(t *testing.T, tenant string) uuid.UUID {
	t.Helper()
	run, _, err := s.runs.Create(t.Context(), tenant, crawl.NewRun{AppPackage: "com.example.shop"})
	if err == nil {
		_, err = s.runs.Start(t.Context(), tenant, run.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// append appends n events of about size bytes each, in one transaction.
func (s *streams) append(t *testing.T, run uuid.UUID, n, size int) {
	t.Helper()
	events := make([]crawl.NewEvent, n)
	for i := range events {
		events[i] = crawl.NewEvent{Type: crawl.ActionExecuted,
			Payload: fmt.Appendf(nil, `{"n": %d, "text": "%0*d\r\n\u2028é"}`, i, size, i)}
	}
	if _, err := s.runs.Append(context.WithoutCancel(t.Context()), crawl.DefaultTenant, run, events...); err != nil {
		t.Error(err)
	}
}

func (s *streams) complete(t *testing.T, run uuid.UUID) {
	t.Helper()
	if _, err := s.runs.Complete(context.WithoutCancel(t.Context()), crawl.DefaultTenant, run); err != nil {
		t.Error(err)
	}
}

// signalRedis sends a signal to the server.
func (s *streams) signalRedis(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.redis.PID(), signal); err != nil {
		t.Fatal(err)
	}
}

// get makes a request and returns the status and the beginning of the body.
func get(t *testing.T, url string, header ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp.StatusCode, "" // it would be read until the run ends
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not come to hold in %s: %s", tier.Patience(), what)
		}
	}
}
