package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/token"
)

// long is a log in memory: each run has events of one payload. What is tested here is the
// connection, and when it ends.
type long struct {
	crawl.Store
	payload json.RawMessage
	events  int64
}

func (l *long) GetRun(_ context.Context, tenant string, id uuid.UUID) (crawl.Run, error) {
	return crawl.Run{ID: id, Tenant: tenant, Status: crawl.Running, Crawler: "external", LastSeq: l.events}, nil
}

func (l *long) ListEvents(
	_ context.Context, tenant string, run uuid.UUID, after int64, limit int,
) (events []crawl.Event, err error) {
	for i := after + 1; i <= min(after+int64(limit), l.events); i++ {
		events = append(events, crawl.Event{Run: run, Tenant: tenant, Seq: i, ID: uuid.New(), Type: crawl.ActionExecuted,
			CreatedAt: time.Now(), Payload: l.payload})
	}
	return events, nil
}

func (l *long) LastSeqs(_ context.Context, _ string, runs []uuid.UUID) (map[uuid.UUID]int64, error) {
	last := map[uuid.UUID]int64{}
	for _, run := range runs {
		last[run] = l.events
	}
	return last, nil
}

func (l *long) EndedRuns(context.Context, string, []uuid.UUID) (map[uuid.UUID]int64, error) {
	return nil, nil
}

// silent acknowledges and publishes nothing.
type silent struct{}

func (silent) Subscribe(context.Context, string, outbox.Listener) (bool, func()) {
	return true, func() {}
}

// serving is a gateway's server, which has no limits of time of its own.
type serving struct {
	*Gateway
	*httptest.Server
	handling atomic.Int64 // requests
}

func serve(t *testing.T, log *long, change func(*Config)) *serving {
	t.Helper()
	cfg := Config{Runs: crawl.NewService(log, crawl.ServiceConfig{}),
		Hub: stream.New(Log(log, 6), silent{}, stream.Config{}), Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &serving{Gateway: g}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handling.Add(1)
		defer s.handling.Add(-1)
		g.Handler().ServeHTTP(w, r)
	}))
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// dial sends the beginning of a request.
func (s *serving) dial(t *testing.T, request string, args ...any) net.Conn {
	t.Helper()
	conn, err := s.begin(t, request, args...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (s *serving) begin(t *testing.T, request string, args ...any) (net.Conn, error) {
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(tier.Patience())); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, request, args...)
	return conn, err
}

// read reads the beginning of an answer.
func read(t *testing.T, r *bufio.Reader) (status int, body io.Reader) {
	t.Helper()
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer.StatusCode, answer.Body
}

// A body that was announced and does not come: net/http waits for it before it sends what was
// answered long ago.
func TestABodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	// On a busy machine a request and its answer may need a second for themselves.
	s := serve(t, &long{}, func(c *Config) { c.Auth, c.Timeout = &token.Authenticator{}, 3*time.Second })
	var asking sync.WaitGroup
	defer asking.Wait()
	for line, status := range map[string]int{"POST /v1/runs": 401, "GET /v1/runs": 401, "GET /v1/stream?topics=a": 400,
		"GET /v1/runs/x/stream": 400, "POST /nothing": 404} {
		for _, length := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			asking.Go(func() {
				conn, err := s.begin(t, "%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n", line, length)
				if err != nil {
					t.Error(err)
					return
				}
				r := bufio.NewReader(conn)
				answer, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Errorf("%s with %s: %v", line, length, err)
					return
				}
				defer func() { _ = answer.Body.Close() }()
				if answer.StatusCode != status {
					t.Errorf("%s with %s: %d, want %d", line, length, answer.StatusCode, status)
				}
				if _, err := io.Copy(io.Discard, answer.Body); err != nil {
					t.Error(err)
				}
				if _, err := r.ReadByte(); err != io.EOF {
					t.Errorf("%s with %s: the connection goes on: %v", line, length, err)
				}
			})
		}
	}
}

// A client that asks for much and does not read it.
func TestAnAnswerThatIsNotRead(t *testing.T) {
	t.Parallel()
	log := &long{payload: json.RawMessage(`"` + strings.Repeat("x", 20_000) + `"`), events: 1000}
	s := serve(t, log, func(c *Config) { c.Timeout = time.Minute }) // on a busy machine the answer is made slowly
	conn := s.dial(t, "GET /v1/runs/%s/events?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n", uuid.New())
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the handler gives up", func() bool { return s.handling.Load() == 0 })
}

// A connection goes on after a request that was worked on for longer than its body may take.
func TestASlowRequestDoesNotSpoilItsConnection(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	limits := func(next http.Handler) http.Handler {
		return gate{cfg: &Config{Timeout: timeout}}.limited(next)
	}
	server := httptest.NewServer(limits(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		if r.Method == http.MethodPost {
			time.Sleep(readTimeout(timeout) + timeout/10)
		}
		if err := r.Context().Err(); err != nil {
			t.Errorf("%s: the client is taken for gone: %v", r.Method, err)
		}
		// A busy machine wakes the handler late. The limit of its answer is not what this is about.
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(tier.Patience())); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusNoContent)
	})))
	t.Cleanup(server.Close)
	conn := (&serving{Server: server}).dial(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	r := bufio.NewReader(conn)
	for _, next := range []string{"GET", "POST", "GET"} {
		if status, _ := read(t, r); status != http.StatusNoContent {
			t.Fatalf("status %d", status)
		}
		time.Sleep(timeout / 2) // the limits of the one before are over
		if _, err := fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", next); err != nil {
			t.Fatal(err)
		}
	}
	if status, _ := read(t, r); status != http.StatusNoContent {
		t.Fatalf("status %d", status)
	}
}

// A client that receives steadily and slowly is never too slow, and has a whole page before it.
func TestASlowStreamEndsAfterAnEvent(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*StreamConfig){
		"drained": func(c *StreamConfig) { c.DrainWindow = 10 * time.Millisecond },
		"rotated": func(c *StreamConfig) { c.MaxAge = 500 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &long{payload: json.RawMessage(`"` + strings.Repeat("x", 60_000) + `"`), events: 500}
			s := serve(t, log, func(c *Config) { edit(&c.Streams) })
			conn := s.dial(t, "GET /v1/runs/%s/stream HTTP/1.1\r\nHost: localhost\r\n\r\n", uuid.New())
			_, answer := read(t, bufio.NewReader(slowly{conn}))
			stream := bufio.NewReader(answer)
			var body []byte
			for !bytes.Contains(body, []byte("\nid: ")) { // drained before, it would end without an event
				line, err := stream.ReadBytes('\n')
				if body = append(body, line...); err != nil {
					t.Fatalf("the stream ends with %q: %v", body, err)
				}
			}
			if name == "drained" {
				go s.DrainStreams(t.Context())
			}
			rest, err := io.ReadAll(stream)
			if err != nil {
				t.Fatalf("the stream is cut off: %v", err)
			}
			body = append(body, rest...)
			if n := strings.Count(string(body), "\nid: "); n == 500 || !strings.HasSuffix(string(body), "}\n\n") {
				t.Errorf("it ends after %d events with %q", n, body[max(0, len(body)-20):])
			}
		})
	}
}

// slowly receives about 6 MB a second: a page of 30 MB would take 5 s.
type slowly struct{ io.Reader }

func (s slowly) Read(b []byte) (int, error) {
	time.Sleep(4 * time.Millisecond)
	return s.Reader.Read(b[:min(len(b), 24<<10)])
}

// The time of a stream's last write is over when it ends, and the end is a write too.
func TestAQuietStreamEndsProperly(t *testing.T) {
	t.Parallel()
	s := serve(t, &long{}, func(c *Config) {
		c.Streams = StreamConfig{WriteTimeout: time.Second, DrainWindow: time.Millisecond, Heartbeat: time.Minute}
	})
	_, stream := read(t,
		bufio.NewReader(s.dial(t, "GET /v1/runs/%s/stream HTTP/1.1\r\nHost: localhost\r\n\r\n", uuid.New())))
	time.Sleep(1100 * time.Millisecond)
	go s.DrainStreams(t.Context())
	if body, err := io.ReadAll(stream); err != nil || !strings.HasPrefix(string(body), "retry: ") {
		t.Errorf("%q, %v", body, err)
	}
}

// HEAD has no stream to follow: it would be open until its age.
func TestHeadOpensNoStream(t *testing.T) {
	t.Parallel()
	// Without tokens: a ticket that was looked up would be a panic.
	s := serve(t, &long{}, func(c *Config) { c.Auth = &token.Authenticator{} })
	for _, path := range []string{"/v1/runs/" + uuid.NewString() + "/stream", "/v1/stream?topics=a"} {
		path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "ticket=obt_x"
		answer, err := http.Head(s.URL + path)
		if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != eventStream {
			t.Fatalf("%s: %v, %v", path, answer, err)
		}
		_ = answer.Body.Close()
	}
	if n := s.StreamStats().Connections; n != 0 {
		t.Errorf("%d streams are open", n)
	}
}

func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for began := time.Now(); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > tier.Patience() {
			t.Fatalf("not within %s: %s", tier.Patience(), what)
		}
	}
}
