package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/gateway"
)

// underWay has some clients follow a run that is written meanwhile. end waits for all of it and
// compares each record with the table.
func (s *streams) underWay(
	t *testing.T, cuts func(*rand.Rand) cut, nodes ...*node,
) (run uuid.UUID, end func() []*client) {
	t.Helper()
	run = s.start(t)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.server.URL)
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), tier.Patience())
	clients := make([]*client, 6)
	var reading, writing sync.WaitGroup
	for i := range clients {
		clients[i] = &client{nodes: addresses, run: run, byQuery: i%2 == 0, payloadOnly: i == 5}
		reading.Go(func() {
			if _, err := clients[i].follow(limit, rand.New(rand.NewPCG(uint64(i), 0)), cuts); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	writing.Go(func() {
		for ctx.Err() == nil {
			s.append(t, run, 3, 100)
			time.Sleep(20 * time.Millisecond)
		}
		s.complete(t, run)
	})
	end = sync.OnceValue(func() []*client {
		stop()
		writing.Wait()
		reading.Wait()
		cancel()
		want := newRecord(s.logOf(t, run))
		for i, c := range clients {
			if err := want.check(c); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		}
		return clients
	})
	t.Cleanup(func() { end() })
	return run, end
}

// progress waits until the run has n more events than now.
func (s *streams) progress(t *testing.T, run uuid.UUID, n int64) {
	t.Helper()
	begin := s.last(t, run)
	eventually(t, "the run goes on", func() bool { return s.last(t, run) >= begin+n })
}

func (s *streams) last(t *testing.T, run uuid.UUID) int64 {
	t.Helper()
	r, err := s.runs.Get(t.Context(), crawl.DefaultTenant, run)
	if err != nil {
		t.Fatal(err)
	}
	return r.LastSeq
}

// undisturbed expects that no connection was broken: one for the whole run, and one that is told
// that it has ended.
func undisturbed(t *testing.T, clients []*client) {
	t.Helper()
	for i, c := range clients {
		if c.connections != 2 {
			t.Errorf("client %d connected %d times, want 2: something has disconnected it", i, c.connections)
		}
	}
}

func uncut(*rand.Rand) cut { return never }

func TestStreamWithoutARelay(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	stop := s.deliverRuns(t)
	n := s.serve(t, nil)
	run, end := s.underWay(t, uncut, n)
	s.progress(t, run, 30)
	stop()
	before := n.hub.Stats()
	s.progress(t, run, 60)
	eventually(t, "events come from the log", func() bool { return n.hub.Stats().Gaps > before.Gaps+30 })
	if n.hub.Stats().FromLive > before.FromLive+10 { // what the relay had published when it stopped
		t.Error("events come from Redis, though no relay is there")
	}
	s.deliverRuns(t)
	s.progress(t, run, 60)
	undisturbed(t, end())
}

func TestStreamWhileRedisIsAway(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, away := range map[string]func(*testing.T, *streams, *node){
		"killed": func(t *testing.T, s *streams, n *node) {
			if err := s.redis.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the gateway knows", func() bool { return !n.live.State().Up })
		},
		"half-open": func(t *testing.T, s *streams, n *node) {
			s.signalRedis(t, syscall.SIGSTOP)
			eventually(t, "the gateway knows", func() bool { return !n.live.State().Up })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreams(t)
			s.deliverRuns(t)
			n := s.serve(t, nil)
			run, end := s.underWay(t, uncut, n)
			s.progress(t, run, 30)
			away(t, s, n)
			before := n.hub.Stats()
			s.progress(t, run, 60)
			eventually(t, "events come from the log", func() bool { return n.hub.Stats().Gaps > before.Gaps })
			// A client that comes while Redis is away is not kept waiting for it.
			late := &client{nodes: []string{n.server.URL}, run: run}
			if status, err := late.connect(t.Context(), cut{-1, 20}); status != http.StatusOK || !errors.Is(err, errHungUp) {
				t.Errorf("a client that comes meanwhile: %d, %v", status, err)
			}
			if name == "killed" {
				if err := s.redis.Restart(); err != nil {
					t.Fatal(err)
				}
			} else {
				s.signalRedis(t, syscall.SIGCONT)
			}
			eventually(t, "the gateway listens again", func() bool { return n.live.State().Up })
			s.progress(t, run, 60)
			undisturbed(t, end())
		})
	}
}

func TestStreamOfTwoGateways(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	s.deliverRuns(t)
	run, end := s.underWay(t, func(rng *rand.Rand) cut { return cut{-1, 1 + rng.IntN(12)} }, s.serve(t, nil),
		s.serve(t, nil))
	s.progress(t, run, 150)
	for i, c := range end() {
		if c.connections < 10 {
			t.Errorf("client %d connected %d times, too few to tell", i, c.connections)
		}
	}
}

// The same stream, live and read again, is the same bytes: no client can tell whether an event came
// from Redis or from the log.
func TestStreamIsTheSameBytesLiveAndLater(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	s.deliverRuns(t)
	n, other := s.serve(t, nil), s.serve(t, nil)
	run := s.start(t)
	read := func(from *node) string {
		resp, err := (&client{nodes: []string{from.server.URL}, run: run}).open(t.Context())
		if err != nil {
			t.Error(err)
			return ""
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	live := make(chan string)
	go func() { live <- read(n) }()
	eventually(t, "the first client is there", func() bool { return n.hub.Stats().Readers == 1 })
	for i := range 40 {
		s.append(t, run, 2, 100*i)
	}
	s.complete(t, run)
	first, again, elsewhere := <-live, read(n), read(other)
	begin := regexp.MustCompile(`^retry: \d+\n\n`)
	if !begin.MatchString(first) {
		t.Fatalf("the stream begins with %q", first[:min(len(first), 40)])
	}
	first = begin.ReplaceAllString(first, "")
	if again = begin.ReplaceAllString(again, ""); again != first || begin.ReplaceAllString(elsewhere, "") != first {
		t.Errorf("the stream is not the same when it is read again:\n%.2000s\n\n%.2000s", first, again)
	}
	if count := strings.Count(first, "\nevent: "); count != 82 {
		t.Errorf("%d events, want 82", count)
	}
	if live, log := n.hub.Stats().FromLive, other.hub.Stats().FromLog; live == 0 || log != 82 {
		t.Errorf("%d events came live to the first client, %d from the log to the last: the test did not compare what "+
			"it is for", live, log)
	}
}

// follow connects a client, and returns the error of its connection's end once that has ended.
func follow(t *testing.T, n *node, c *client) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := c.connect(context.WithoutCancel(t.Context()), never)
		ended <- err
	}()
	eventually(t, "the client is there", func() bool { return n.hub.Stats().Readers == 1 })
	return ended
}

// The application ends the run by UPDATE alone, as FR-006 lets it.
func TestStreamEndsWithAFinalStatus(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	n := s.serve(t, nil)
	run := s.start(t)
	c := &client{nodes: []string{n.server.URL}, run: run}
	ended := follow(t, n, c)
	s.exec(t, "UPDATE crawl_runs SET status = 'FAILED', completed_at = now() WHERE id = $1", run)
	select {
	case err := <-ended:
		noError(t, err)
	case <-time.After(tier.Patience()):
		t.Fatal("the stream does not end")
	}
	if err := newRecord(s.logOf(t, run)).check(c); err != nil {
		t.Error(err)
	}
	if status, err := c.connect(t.Context(), never); status != http.StatusNoContent {
		t.Errorf("the client that has everything got %d, error %v; want 204", status, err)
	}
}

// Rows as the seeds write them, with five columns: no number, no event id.
func TestStreamOfRowsByPlainSQL(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	subscriber := redis.NewClient(&redis.Options{Network: "unix", Addr: s.redis.Socket()})
	defer func() { _ = subscriber.Close() }()
	subscription := subscriber.PSubscribe(t.Context(), "run:*")
	defer func() { _ = subscription.Close() }()
	if _, err := subscription.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard := subscription.Channel()
	s.deliverRuns(t)
	n := s.serve(t, nil)
	run := s.start(t)
	c := &client{nodes: []string{n.server.URL}, run: run}
	ended := follow(t, n, c)
	for i := range 60 {
		s.exec(t, `WITH e AS (INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, 'PROCESSING', jsonb_build_object('n', $2::int)) RETURNING *)
			INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT crawl_id, event_type, payload FROM e`, run, i)
		if i%10 == 0 {
			s.append(t, run, 1, 10) // among the others, by the API
		}
	}
	s.complete(t, run)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := newRecord(s.logOf(t, run)).check(c); err != nil {
		t.Error(err)
	}
	if len(c.got) != 68 {
		t.Errorf("%d events, want 68", len(c.got))
	}
	// A subscriber of Redis and one of the stream see one event, with one id and one number.
	published := map[string]string{}
	for len(published) < 68 {
		var m struct{ ID, Sequence string }
		select {
		case message := <-heard:
			if err := json.Unmarshal([]byte(message.Payload), &m); err != nil {
				t.Fatal(err)
			}
			published[m.ID] = m.Sequence
		case <-time.After(tier.Patience()):
			t.Fatalf("%d events came to Redis, want 68", len(published))
		}
	}
	for _, e := range s.logOf(t, run) {
		if want := fmt.Sprintf("%019d", e.seq); published[e.id] != want {
			t.Errorf("event %s: its sequence at Redis is %q, want %q", e.id, published[e.id], want)
		}
	}
}

// What comes over the channel a second time, too late, or is not in the log is sent to nobody: the
// log is the truth.
func TestStreamOfCopiesAndForgeries(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	s.deliverRuns(t)
	n := s.serve(t, nil)
	run, end := s.underWay(t, uncut, n)
	page, err := gateway.Log(s.store, 6).Page(t.Context(), crawl.DefaultTenant, run, 0, 1)
	if err != nil || len(page) != 1 {
		t.Fatalf("%d events, %v", len(page), err)
	}
	one := string(page[0].Event)
	for range 40 {
		top := s.last(t, run)
		if page, err = gateway.Log(s.store, 6).Page(t.Context(), crawl.DefaultTenant, run, top-1, 1); err != nil ||
			len(page) != 1 {
			t.Fatalf("%d events, %v", len(page), err)
		}
		for _, text := range []string{one, string(page[0].Event), string(page[0].Event),
			strings.Replace(one, `"sequence":"0000000000000000001"`, fmt.Sprintf(`"sequence":"%019d"`, top+1000), 1), "nonsense",
			"{}",
			forged(run, top+1, crawl.ActionExecuted), forged(run, top+1, crawl.RunCompleted),
			forged(run, top+2, crawl.RunFailed)} {
			s.command(t, "PUBLISH", "run:"+run.String(), text)
		}
		s.progress(t, run, 3)
	}
	undisturbed(t, end())
	if heard := n.live.messages.Load(); heard < 240 {
		t.Errorf("the gateway heard %d messages, want those of the test and more", heard)
	}
}

// forged is a message that is in every respect what the relay would publish of the run's event with
// that number.
func forged(run uuid.UUID, seq int64, of string) string {
	e := crawl.Event{Run: run, Tenant: crawl.DefaultTenant, Seq: seq, ID: uuid.New(), Type: of, CreatedAt: time.Now(),
		Payload: []byte(`{"forged": true}`)}
	d := e.Delivery()
	return string(outbox.CloudEvent(nil, &d))
}

// A database that took over and lacks the last events: who has seen them is not sent other events
// under their numbers.
func TestStreamOfALogThatLostItsEnd(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	s.deliverRuns(t)
	n := s.serve(t, nil)
	run := s.start(t)
	s.append(t, run, 20, 100)
	c := &client{nodes: []string{n.server.URL}, run: run}
	ctx, cancel := context.WithTimeout(t.Context(), tier.Patience())
	defer cancel()
	broken := make(chan error, 1)
	go func() {
		_, err := c.connect(ctx, never)
		broken <- err
	}()
	eventually(t, "the client has the history", func() bool { return n.StreamStats().Sent == 21 })
	s.exec(t, "DELETE FROM crawl_events WHERE crawl_id = $1 AND seq > 15", run)
	if err := <-broken; err == nil || ctx.Err() != nil || c.last() != 21 {
		t.Fatalf("the stream ended with %v after event %d, want the gateway to break it after 21", err, c.last())
	}
	if status, err := c.connect(t.Context(), never); status != http.StatusBadRequest || err != nil {
		t.Errorf("with a cursor that the log does not have: %d, %v, want 400", status, err)
	}
	s.append(t, run, 3, 100) // numbers 16 to 18 a second time
	s.complete(t, run)
	c.got = nil
	if status, err := c.connect(t.Context(), never); status != http.StatusOK || err != nil {
		t.Fatalf("from the beginning: %d, %v", status, err)
	}
	if err := newRecord(s.logOf(t, run)).check(c); err != nil || len(c.got) != 19 {
		t.Errorf("%d events, %v; want 19", len(c.got), err)
	}
}
