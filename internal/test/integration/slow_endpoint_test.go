package integration

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/webhook"
	"github.com/outboxrelay/outbox/store/postgres"
)

// hanging is an endpoint that answers when it is let, and notes what came, by key.
type hanging struct {
	*httptest.Server
	mu     sync.Mutex
	let    chan struct{} // closed: it answers at once
	byKey  map[string][]string
	copies int
	left   int // requests that were given up before their answer
}

func newHanging(t *testing.T) *hanging {
	t.Helper()
	h := &hanging{let: make(chan struct{}), byKey: map[string][]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		key, id := r.Header.Get("ce-partitionkey"), r.Header.Get("webhook-id")
		h.mu.Lock()
		if slices.Contains(h.byKey[key], id) {
			h.copies++
		}
		h.byKey[key] = append(h.byKey[key], id)
		let := h.let
		h.mu.Unlock()
		select {
		case <-let:
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
			h.mu.Lock()
			defer h.mu.Unlock()
			h.left++
		}
	}))
	t.Cleanup(h.Close)
	t.Cleanup(h.answer)
	return h
}

// hang has it answer nothing any more.
func (h *hanging) hang() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.let = make(chan struct{})
}

// answer has it answer, and what it has got too.
func (h *hanging) answer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.let:
	default:
		close(h.let)
	}
}

// requests returns how many came, how many of them as copies, and how many were given up.
func (h *hanging) requests() (n, copies, left int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ids := range h.byKey {
		n += len(ids)
	}
	return n, h.copies, h.left
}

// An endpoint that hangs holds up its own keys and nothing else: what is for another arrives while
// it hangs. Nothing is sent twice and the keys stay in order, although a second relay comes for its
// share of the lanes, and although a relay stops while a request is under way.
func TestSlowEndpointHoldsUpItsOwnKeysAlone(t *testing.T) {
	tier.Full(t)
	pool, err := pgxpool.New(t.Context(), migrated(t))
	noError(t, err)
	defer pool.Close()
	slow, fine := newHanging(t), newHanging(t)
	fine.answer()
	secret := []webhook.Secret{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="}
	endpoints := webhook.List{{Name: "slow", URL: slow.URL, Secrets: secret, Timeout: 2 * time.Minute, Concurrency: 16},
		{Name: "fine", URL: fine.URL, Secrets: secret}}
	var log said
	relay := func() (stop func()) {
		sink, err := webhook.New(endpoints, webhook.Config{AllowPrivate: true, AllowHTTP: true, Binary: true})
		noError(t, err)
		r, err := relay.New(postgres.NewDB(pool), sink, relay.Config{
			Tables: []relay.Table{{Layout: outbox.OutboxEvents()}}, DrainTimeout: 2 * time.Minute,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		noError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := sink.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	sum := map[string]int{}
	write := func(to string, n, keys int) {
		t.Helper()
		sum[to] += n
		if _, err := pool.Exec(t.Context(), `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload,
			aggregate_type, aggregate_id, destination_topics) SELECT 't', now(), 's', '{"n": 1}', 'a', $1::text || i % $3::int,
			jsonb_build_array($1) FROM generate_series(1, $2) AS i`, to, n, keys); err != nil {
			t.Fatal(err)
		}
	}
	lanes := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT count(DISTINCT owner) FROM outbox_lanes
			WHERE owner IS NOT NULL AND expires_at > now()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	arrived := func(h *hanging, want int) {
		t.Helper()
		until(t, &log, func() bool { n, _, _ := h.requests(); return n >= want })
	}
	stopFirst := relay()
	write("slow", 300, 60) // more than it may have at the same time
	arrived(slow, 16)
	for range 30 {
		write("fine", 10, 5)
		arrived(fine, sum["fine"])
	}
	if n, copies, left := slow.requests(); n != 16 || copies+left > 0 {
		t.Errorf("it has %d requests, %d of them copies, and %d were given up before others got theirs", n, copies, left)
	}
	stopSecond := relay()
	until(t, &log, func() bool { return lanes() == 2 })
	write("fine", 100, 50)
	arrived(fine, sum["fine"])
	slow.answer()
	arrived(slow, sum["slow"])

	slow.hang()
	write("slow", 5, 5)
	arrived(slow, sum["slow"])
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stopFirst()
		stopSecond()
	}()
	write("fine", 10, 10) // nobody is there to take it, or one that is about to stop
	time.Sleep(time.Second)
	slow.answer()
	<-stopped
	defer relay()()
	arrived(fine, sum["fine"])
	until(t, &log, func() bool {
		var n int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox_events WHERE status <> 'SENT'`).Scan(&n)
		return err == nil && n == 0
	})
	for name, h := range map[string]*hanging{"slow": slow, "fine": fine} {
		if n, copies, left := h.requests(); n != sum[name] || copies+left > 0 {
			t.Errorf("%s has %d of %d requests, %d of them copies, %d were given up", name, n, sum[name], copies, left)
		}
		for key, ids := range h.byKey {
			var want []string
			rows, err := pool.Query(t.Context(), `SELECT id::text FROM outbox_events WHERE aggregate_id = $1
				ORDER BY position`, key)
			noError(t, err)
			for rows.Next() {
				var id string
				noError(t, rows.Scan(&id))
				want = append(want, id)
			}
			if fmt.Sprint(ids) != fmt.Sprint(want) {
				t.Errorf("key %s arrived as %v, want %v", key, ids, want)
			}
		}
	}
}
