package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/server/token"
)

// Each limit by itself: of a run, of a tenant, of the process. What is over is refused with 429,
// and let in when somebody has left.
func TestStreamLimits(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	for name, edit := range map[string]func(*gateway.StreamConfig){
		"run":     func(c *gateway.StreamConfig) { c.MaxPerRun = 2 },
		"tenant":  func(c *gateway.StreamConfig) { c.MaxPerTenant = 2 },
		"process": func(c *gateway.StreamConfig) { c.MaxConnections = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			n := s.serve(t, func(cfg *gateway.Config) { edit(&cfg.Streams) })
			run, other := s.start(t), s.start(t)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var open sync.WaitGroup
			for range 2 {
				resp, err := (&client{nodes: []string{n.server.URL}, run: run}).open(ctx)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("a stream within the limit: %v, %v", resp, err)
				}
				open.Go(func() {
					<-ctx.Done()
					_ = resp.Body.Close()
				})
			}
			url := n.server.URL + "/v1/runs/%s/stream"
			if status, body := get(t, fmt.Sprintf(url, run)); status != http.StatusTooManyRequests ||
				!strings.Contains(body, "limit") {
				t.Errorf("one more: %d %s, want 429", status, body)
			}
			want := http.StatusTooManyRequests
			if name == "run" {
				want = http.StatusOK
			}
			if status, body := get(t, fmt.Sprintf(url, other)); status != want {
				t.Errorf("one of another run: %d %s, want %d", status, body, want)
			}
			leave()
			open.Wait()
			eventually(t, "the clients have left", func() bool { return n.StreamStats().Connections == 0 })
			if status, body := get(t, fmt.Sprintf(url, run)); status != http.StatusOK {
				t.Errorf("after they have left: %d %s, want 200", status, body)
			}
			if refused := n.StreamStats().Refused; name == "run" && refused != 1 || name != "run" && refused != 2 {
				t.Errorf("%d refused are counted", refused)
			}
		})
	}
}

// A connection that is old enough ends between two events, and the client goes on where it was.
func TestStreamsRotate(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	s.deliverRuns(t)
	n := s.serve(t, func(cfg *gateway.Config) { cfg.Streams.MaxAge = 200 * time.Millisecond })
	run, end := s.underWay(t, uncut, n)
	s.progress(t, run, 150)
	for i, c := range end() {
		if c.connections < 4 {
			t.Errorf("client %d connected %d times, want more: nothing rotated", i, c.connections)
		}
	}
}

// A gateway that drains ends all streams between two events, within its window; those that come
// meanwhile and afterwards too.
func TestStreamsDrain(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	s.deliverRuns(t)
	old := s.serve(t, func(cfg *gateway.Config) { cfg.Streams.DrainWindow = 200 * time.Millisecond })
	next := s.serve(t, nil)
	run := s.start(t)
	clients := make([]*client, 30)
	var reading sync.WaitGroup
	for i := range clients {
		clients[i] = &client{nodes: []string{old.server.URL}, run: run}
		reading.Go(func() {
			if _, err := clients[i].connect(context.WithoutCancel(t.Context()), never); err != nil {
				t.Errorf("client %d: its stream ended with %v, want it to end properly", i, err)
			}
		})
	}
	eventually(t, "all are there", func() bool { return old.StreamStats().Connections == len(clients) })
	writing := inBackground(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			s.append(t, run, 1, 100)
		}
		return nil
	})
	s.progress(t, run, 20)
	limit, cancel := context.WithTimeout(t.Context(), tier.Patience())
	defer cancel()
	old.DrainStreams(limit)
	if left := old.StreamStats().Connections; left != 0 {
		t.Fatalf("%d streams are left", left)
	}
	reading.Wait()
	for range 3 { // that did not hear of it; each gets what is there, or nothing, and is sent away
		late := &client{nodes: []string{old.server.URL}, run: run}
		if status, err := late.connect(t.Context(), never); status != http.StatusOK || err != nil {
			t.Errorf("a client that comes after the drain: %d, %v, want its stream to end at once", status, err)
		}
	}
	writing()
	s.complete(t, run)
	want := newRecord(s.logOf(t, run))
	for i, c := range clients {
		c.nodes = []string{next.server.URL}
		if _, err := c.follow(t.Context(), rand.New(rand.NewPCG(1, 1)), uncut); err != nil {
			t.Fatal(err)
		}
		if err := want.check(c); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
}

// The cursor: the header, then lastEventId, then fromSeq; a malformed one and one that the run does
// not have are 400, the end of an ended run is 204.
func TestStreamCursor(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	n := s.serve(t, nil)
	run := s.start(t)
	s.append(t, run, 8, 10)
	s.complete(t, run) // event 10
	base := n.server.URL + "/v1/runs/" + run.String() + "/stream"
	for _, tt := range []struct {
		query, header string
		status        int
	}{
		{"", "", http.StatusOK},
		{"", "10", http.StatusNoContent},
		{"?lastEventId=10", "", http.StatusNoContent},
		{"?fromSeq=11", "", http.StatusNoContent},
		{"?lastEventId=10", "9", http.StatusOK},
		{"?lastEventId=3&fromSeq=11", "", http.StatusOK},
		{"?lastEventId=3", "10", http.StatusNoContent},
		{"?fromSeq=12", "", http.StatusBadRequest},
		{"", "11", http.StatusBadRequest},
		{"?lastEventId=11", "", http.StatusBadRequest},
		{"?lastEventId=3", "x", http.StatusBadRequest},
		{"?lastEventId=03", "", http.StatusBadRequest},
		{"?lastEventId=-1", "", http.StatusBadRequest},
		{"?fromSeq=0", "", http.StatusBadRequest},
		{"?lastEventId=1&lastEventId=2", "", http.StatusBadRequest},
		{"?envelope=xml", "", http.StatusBadRequest},
	} {
		var header []string
		if tt.header != "" {
			header = []string{"Last-Event-ID", tt.header}
		}
		if status, body := get(t, base+tt.query, header...); status != tt.status {
			t.Errorf("%q with header %q: %d %s, want %d", tt.query, tt.header, status, body, tt.status)
		}
	}
	for path, want := range map[string]int{uuid.NewString(): http.StatusNotFound, "x": http.StatusBadRequest} {
		if status, body := get(t, n.server.URL+"/v1/runs/"+path+"/stream"); status != want {
			t.Errorf("run %s: %d %s, want %d", path, status, body, want)
		}
	}
}

// The run of another tenant does not exist.
func TestStreamAuthentication(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	store, err := pgstore.OpenTokens(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	auth := &token.Authenticator{Store: store}
	n := s.serve(t, func(cfg *gateway.Config) { cfg.Auth = auth })
	bearer := func(tenant string, scopes ...token.Scope) string {
		t.Helper()
		tok, text, sum, err := token.New(tenant, "", scopes)
		if err == nil {
			_, err = store.CreateToken(t.Context(), "test", tok, sum, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + text
	}
	owner, other, writer := bearer(crawl.DefaultTenant, token.Read), bearer("other", token.Read),
		bearer(crawl.DefaultTenant, token.Write)
	run := s.start(t)
	for _, url := range []string{n.server.URL + "/v1/runs/" + run.String() + "/stream",
		n.server.URL + "/v1/stream?topics=order.placed,run:" + run.String()} {
		for auth, want := range map[string]int{owner: http.StatusOK, other: http.StatusNotFound, writer: http.StatusForbidden,
			"": http.StatusUnauthorized, owner + "x": http.StatusUnauthorized} {
			if status, body := get(t, url, "Authorization", auth); status != want {
				t.Errorf("%s: %d %s, want %d", url, status, body, want)
			}
		}
	}
}
