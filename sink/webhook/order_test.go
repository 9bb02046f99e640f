package webhook

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox"
)

// Keys go out at the same time, as many as the endpoint allows and no more, from two calls at once
// too.
func TestKeysGoOutTogether(t *testing.T) {
	t.Parallel()
	const allowed = 16
	var under, most atomic.Int64
	together := make(chan struct{})
	var once sync.Once
	r := receive(t, func(http.ResponseWriter, received, int) {
		now := under.Add(1)
		defer under.Add(-1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		if now == allowed {
			once.Do(func() { close(together) })
		}
		<-together // nobody is answered before as many as allowed are there
	})
	e := r.endpoint("acme")
	e.Concurrency = allowed
	s := open(t, newBook(e), local)
	var calls sync.WaitGroup
	for range 2 {
		batch := events(t, 120, "acme")
		calls.Go(func() {
			for i, res := range s.Publish(t.Context(), batch) {
				if res.Err != nil {
					t.Errorf("delivery %d: %v", i, res.Err)
				}
			}
		})
	}
	calls.Wait()
	if most.Load() != allowed || r.count() != 240 {
		t.Errorf("at most %d of %d requests at the same time, want %d of 240", most.Load(), r.count(), allowed)
	}
}

// behindPipes has a Sink dial servers in the bubble of a test, each of which answers 204 after so
// long; 0 is never. It returns the number of connections.
func behindPipes(t *testing.T, s *Sink, takes func(address string) time.Duration) *atomic.Int64 {
	var dialled atomic.Int64
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = s.Close(); serving.Wait() })
	s.transport.TLSHandshakeTimeout = 0
	s.transport.DialContext = func(_ context.Context, _, address string) (net.Conn, error) {
		dialled.Add(1)
		client, server := net.Pipe()
		serving.Go(func() {
			defer func() { _ = server.Close() }()
			wait := takes(address)
			if wait == 0 {
				_, _ = io.Copy(io.Discard, server)
				return
			}
			req, err := http.ReadRequest(bufio.NewReader(server))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			time.Sleep(wait)
			_, _ = io.WriteString(server, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		})
		return client, nil
	}
	return &dialled
}

// Publish returns before its context ends, by a clock of its own. What had its time and no answer
// is the endpoint's failure; what had no turn is nobody's.
func TestPublishEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newBook(Endpoint{Name: "acme", URL: "https://acme.example", Secrets: []Secret{key}, Concurrency: 2}),
			Config{})
		dialled := behindPipes(t, s, func(string) time.Duration { return 0 })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		failed, late := 0, 0
		for _, res := range s.Publish(ctx, events(t, 6, "acme")) {
			if class, _ := outbox.Classify(res.Err); class == outbox.ClassRetryAfter {
				wantClass(t, res.Err, class, "gave no answer within 4.75s", "PublishTimeout", "15s")
				failed++
				continue
			}
			wantClass(t, res.Err, outbox.ClassPostponed, "before its turn")
			late++
		}
		if took := time.Since(began); took != 4750*time.Millisecond || failed != 2 || late != 4 || dialled.Load() != 2 {
			t.Errorf("%s, %d failed, %d late, %d dialled; want 4.75s, 2, 4, 2", took, failed, late, dialled.Load())
		}
	})
}

// An endpoint has all of its timeout if the batch has the time that the sink asks for.
func TestSlowEndpointHasItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := Endpoint{Name: "slow", URL: "http://slow.example", Secrets: []Secret{key}, Timeout: 30 * time.Second}
		late, off := slow, slow
		late.Name, late.URL = "late", "http://late.example"
		off.Name, off.Timeout, off.Disabled = "off", time.Minute, true
		s := open(t, List{slow, late, off}, Config{AllowHTTP: true})
		behindPipes(t, s, func(address string) time.Duration {
			if strings.HasPrefix(address, "late") {
				return 31 * time.Second
			}
			return 29900 * time.Millisecond
		})
		asked := s.Abilities().Timeout()
		if asked < 34*time.Second || asked > 35*time.Second {
			t.Errorf("it asks for %s, want a little more than 32.5 s", asked)
		}
		ctx, cancel := context.WithTimeout(t.Context(), asked)
		defer cancel()
		got := s.Publish(ctx, []outbox.Delivery{event(t, "slow", 1), event(t, "late", 2)})
		wantDelivered(t, got[:1])
		wantClass(t, got[1].Err, outbox.ClassRetryAfter, "no answer within 30s")
		if got := open(t, newBook(), Config{}).Abilities().Timeout(); got < 15*time.Second || got > 20*time.Second {
			t.Errorf("with endpoints that it cannot list it asks for %s", got)
		}
	})
}

// A request that is under way when the context is cancelled has an unknown outcome: nobody's
// failure.
func TestCancelledUnderWay(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := receive(t, func(_ http.ResponseWriter, got received, _ int) {
		cancel()
		<-got.ctx.Done()
	})
	s := open(t, newBook(r.endpoint("acme")), local)
	got := s.Publish(ctx, []outbox.Delivery{event(t, "acme", 1), event(t, "acme", 1), event(t, "acme", 2)})
	wantClass(t, got[0].Err, outbox.ClassUnavailable)
	wantClass(t, got[1].Err, outbox.ClassNotAttempted)
	wantClass(t, got[2].Err, outbox.ClassUnavailable)
}

// The rate is kept, over all keys and calls.
func TestRate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var at []time.Time
	r := receive(t, func(http.ResponseWriter, received, int) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
	})
	e := r.endpoint("acme")
	e.Rate = 20
	s := open(t, newBook(e), local)
	began := time.Now()
	wantDelivered(t, s.Publish(t.Context(), events(t, 11, "acme")))
	if took := time.Since(began); took < 490*time.Millisecond || len(at) != 11 {
		t.Errorf("%d requests in %s, want 11 in half a second at least", len(at), took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	served := 0
	for _, res := range s.Publish(ctx, events(t, 100, "acme")) {
		if res.Err == nil {
			served++
			continue
		}
		wantClass(t, res.Err, outbox.ClassPostponed, "before its turn")
	}
	if served == 0 || served > 21 {
		t.Errorf("%d of 100 were served within half a second, want some and at most 21", served)
	}
}
