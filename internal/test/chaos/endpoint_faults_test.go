package chaos

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// endpoints are receivers of webhooks behind one address, of which some may hang.
type endpoints struct {
	*httptest.Server
	mu      sync.Mutex
	arrived map[string][]time.Time // by the event's id: when it came to an endpoint that answers
	hung    int                    // requests
	let     chan struct{}
}

func newEndpoints(t *testing.T, hang func(path string) bool) *endpoints {
	e := &endpoints{arrived: map[string][]time.Time{}, let: make(chan struct{})}
	e.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		if !hang(r.URL.Path) {
			id := r.Header.Get("webhook-id")
			e.arrived[id] = append(e.arrived[id], time.Now())
			e.mu.Unlock()
			return
		}
		e.hung++
		e.mu.Unlock()
		select {
		case <-e.let:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(e.Close)
	t.Cleanup(sync.OnceFunc(func() { close(e.let) }))
	return e
}

// TestEndpointChaos has 2 of 1000 endpoints of a webhook sink hang. The events of all others arrive
// meanwhile, once. How long they take is compared with a relay whose endpoints all answer; it is
// printed, and held against the time that a request may hang.
func TestEndpointChaos(t *testing.T) {
	const name, hangs = "endpoint-hangs", 30 * time.Second
	inTier(t, name)
	t.Parallel()
	began := time.Now()
	p99 := func(hanging bool) time.Duration {
		w := newWorld(t, fault{name: name})
		e := newEndpoints(t, func(path string) bool { return hanging && (path == "/3" || path == "/500") })
		var list strings.Builder
		list.WriteString("endpoints:\n")
		for i := range 1000 {
			fmt.Fprintf(&list, "  - {name: e%d, url: '%s/%d', timeout: %s, secrets: [%s]}\n",
				i, e.URL, i, hangs, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=")
		}
		file := filepath.Join(t.TempDir(), "endpoints.yaml")
		must(t, os.WriteFile(file, []byte(list.String()), 0o600))
		w.relaySink = "webhook:" + file + "?allow=private,http"
		relay := w.relay(nil)
		rounds := size(400, 100)
		for n := range rounds { // twenty events at a time, to endpoints in turn; the two get some each fifty rounds
			w.exec(`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, aggregate_type, aggregate_id, destination_topics)
				SELECT 't', now(), 's', '{}', 'a', 'e' || i, jsonb_build_array('e' || i)
				  FROM (SELECT ($1::int * 20 + j) * 7 % 1000 AS i FROM generate_series(1, 20) j) k`, n)
			time.Sleep(50 * time.Millisecond)
		}
		const others = ` FROM outbox_events WHERE aggregate_id NOT IN ('e3', 'e500')`
		want := w.number("SELECT count(*)" + others)
		eventually(t, "the events of the others arrive", func() bool {
			if !relay.running() {
				t.Fatalf("the relay has ended: %s", relay.said())
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.arrived) >= want
		})
		if took := time.Since(began); hanging && e.hung == 0 {
			t.Errorf("no request hung in %s: the fault did not strike", took)
		}
		rows, err := w.pool.Query(t.Context(), "SELECT id::text, created_at"+others)
		must(t, err)
		defer rows.Close()
		var took []time.Duration
		for rows.Next() {
			var id string
			var at time.Time
			must(t, rows.Scan(&id, &at))
			e.mu.Lock()
			came := e.arrived[id]
			e.mu.Unlock()
			if len(came) != 1 {
				t.Fatalf("event %s came %d times", id, len(came))
			}
			took = append(took, came[0].Sub(at))
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
		relay.kill(t)
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	without := p99(false)
	with := p99(true)
	if with > hangs/2 {
		t.Errorf("the others' events took %s (p99) beside endpoints that hang, and %s without them", with, without)
	}
	line(t, name, 2, began, "p99 of the others %d ms, without %d ms, ratio %.2f",
		with.Milliseconds(), without.Milliseconds(), with.Seconds()/without.Seconds())
}
