package webhook

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox"
)

// Keys go out at the same time, as many as the endpoint allows and no more, from two calls at once too; the events of
// a key one after another, in their order.
func TestKeysGoOutTogether(t *testing.T) {
	t.Parallel()
	const keys, allowed, each = 40, 16, 3
	var under, most atomic.Int64
	var mu sync.Mutex
	busy := map[string]bool{}
	together := make(chan struct{})
	r := receive(t, func(_ http.ResponseWriter, got received, _ int) {
		now := under.Add(1)
		defer under.Add(-1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		of := got.header.Get("ce-partitionkey")
		mu.Lock()
		if busy[of] {
			t.Errorf("two requests of key %s at the same time", of)
		}
		busy[of] = true
		mu.Unlock()
		if now == allowed {
			select {
			case <-together:
			default:
				close(together)
			}
		}
		<-together // nobody is answered before as many as allowed are there
		mu.Lock()
		busy[of] = false
		mu.Unlock()
	})
	e := r.endpoint("acme")
	e.Concurrency = allowed
	cfg := local
	cfg.Binary = true
	s := open(t, newBook(e), cfg)
	var calls sync.WaitGroup
	want := map[string][]string{}
	for part := range 2 {
		var batch []outbox.Delivery
		for i := range keys * each {
			d := event(t, "acme", int64(part*keys+i%keys))
			batch = append(batch, d)
			want[d.AggregateID] = append(want[d.AggregateID], d.ID.String())
		}
		calls.Go(func() {
			for i, res := range s.Publish(t.Context(), batch) {
				if res.Err != nil {
					t.Errorf("delivery %d: %v", i, res.Err)
				}
			}
		})
	}
	calls.Wait()
	if most.Load() != allowed {
		t.Errorf("at most %d requests at the same time, want %d", most.Load(), allowed)
	}
	got := map[string][]string{}
	for _, one := range r.requests() {
		of := one.header.Get("ce-partitionkey")
		got[of] = append(got[of], one.header.Get("webhook-id"))
	}
	for of, ids := range want {
		if !slices.Equal(got[of], ids) {
			t.Errorf("key %s arrived as %v, want %v", of, got[of], ids)
		}
	}
}

// The events of a key are held behind a failed one whatever their destinations; its own other destinations are not.
func TestOrderAcrossEndpoints(t *testing.T) {
	t.Parallel()
	a, b := receive(t, nil), receive(t, status(http.StatusInternalServerError))
	s := open(t, newBook(a.endpoint("a"), b.endpoint("b")), local)
	first, second := event(t, "b", 1), event(t, "a", 1)
	onA := first
	onA.Destination = "a"
	got := s.Publish(t.Context(), []outbox.Delivery{first, onA, second, onA})
	wantClass(t, got[0].Err, outbox.ClassRetryAfter)
	if !errors.Is(got[2].Err, outbox.ErrNotAttempted) {
		t.Errorf("the later event is answered %+v, want not attempted", got[2])
	}
	wantDelivered(t, []outbox.Result{got[1], got[3]})
	if a.count() != 2 || b.count() != 1 {
		t.Errorf("%d and %d requests, want 2 and 1", a.count(), b.count())
	}
}

// An endpoint that hangs holds its own events only, and not for long: the third failure in a row makes it rest.
func TestHangingEndpointHoldsNobody(t *testing.T) {
	t.Parallel()
	hanging := receive(t, func(_ http.ResponseWriter, got received, _ int) { <-got.ctx.Done() })
	fine := receive(t, nil)
	slow := hanging.endpoint("hanging")
	slow.Concurrency, slow.Timeout = 2, 300*time.Millisecond
	s := open(t, newBook(slow, fine.endpoint("fine")), local)
	var batch []outbox.Delivery
	for i := range 200 {
		batch = append(batch, event(t, []string{"hanging", "fine"}[i%2], int64(i)))
	}
	failed := 0
	for i, res := range s.Publish(t.Context(), batch) {
		if i%2 == 1 {
			wantDelivered(t, []outbox.Result{res})
		} else if class, _ := outbox.Classify(res.Err); class == outbox.ClassPostponed {
			wantClass(t, res.Err, class, "rests", "within 300ms")
		} else if after := wantClass(t, res.Err, outbox.ClassRetryAfter, "within 300ms"); after < 4*time.Second {
			t.Errorf("it waits for %s", after)
		} else {
			failed++
		}
	}
	if n := hanging.count(); n == 0 || failed > n {
		t.Errorf("%d requests hung and %d attempts were counted", n, failed)
	}
}

// Publish returns before its context ends, by a clock of its own. What had its time and no answer is the endpoint's
// failure; what had no turn is nobody's.
func TestPublishEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := Endpoint{Name: "acme", URL: "https://acme.example", Secrets: []Secret{key}, Concurrency: 2}
		s := open(t, newBook(e), Config{})
		var dialled atomic.Int64
		s.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			dialled.Add(1)
			client, server := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }() // takes all, says nothing
			return client, nil
		}
		s.transport.TLSHandshakeTimeout = 0
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		var batch []outbox.Delivery
		for i := range 6 {
			batch = append(batch, event(t, "acme", int64(i)))
		}
		failed, late := 0, 0
		for _, res := range s.Publish(ctx, batch) {
			switch class, _ := outbox.Classify(res.Err); class {
			case outbox.ClassRetryAfter:
				wantClass(t, res.Err, class, "gave no answer within 4.75s", "PublishTimeout", "15s")
				failed++
			default:
				wantClass(t, res.Err, outbox.ClassPostponed, "before its turn")
				late++
			}
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
		late := slow
		late.Name, late.URL = "late", "http://late.example"
		off := slow
		off.Name, off.Timeout, off.Disabled = "off", time.Minute, true
		s := open(t, List{slow, late, off}, Config{AllowHTTP: true})
		var serving sync.WaitGroup
		defer serving.Wait()
		s.transport.DialContext = func(_ context.Context, _, address string) (net.Conn, error) {
			client, server := net.Pipe()
			takes := 29900 * time.Millisecond
			if strings.HasPrefix(address, "late") {
				takes = 31 * time.Second
			}
			serving.Go(func() {
				defer func() { _ = server.Close() }()
				req, err := http.ReadRequest(bufio.NewReader(server))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				time.Sleep(takes)
				_, _ = io.WriteString(server, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			})
			return client, nil
		}
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

// A request that is under way when the context is cancelled has an unknown outcome: nobody's failure.
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
	var batch []outbox.Delivery
	for i := range 11 {
		batch = append(batch, event(t, "acme", int64(i)))
	}
	wantDelivered(t, s.Publish(t.Context(), batch))
	if took := time.Since(began); took < 490*time.Millisecond || len(at) != 11 {
		t.Errorf("%d requests in %s, want 11 in half a second at least", len(at), took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	batch = nil
	for i := range 100 {
		batch = append(batch, event(t, "acme", int64(i)))
	}
	served := 0
	for _, res := range s.Publish(ctx, batch) {
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
