package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	gosse "github.com/tmaxmax/go-sse"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
)

// tab is a browser tab that watches several topics over one connection.
type tab struct {
	url string

	mu     sync.Mutex
	runs   map[string][]string // by run: the numbers of its events
	orders []int               // the numbers in the payloads
	resets int
	last   string // id
	err    error
}

// watch reads the stream from where the tab was until leave is called.
func (b *tab) watch(t *testing.T) (leave func()) {
	return inBackground(t, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url, nil)
		if err != nil {
			return err
		}
		if b.last != "" {
			req.Header.Set("Last-Event-ID", b.last)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("open %s: status %d", b.url, resp.StatusCode)
		}
		for event, err := range gosse.Read(resp.Body, nil) {
			if err != nil {
				return nil // left
			}
			b.take(event)
		}
		return nil
	})
}

func (b *tab) take(event gosse.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = event.LastEventID
	if event.Type == "outbox.reset" {
		b.resets++
		if event.Data != `{"topic":"order.placed"}` {
			b.err = fmt.Errorf("reset of %s", event.Data)
		}
		return
	}
	if event.Data == "" {
		return // the beginning, which has an id so that a client that is cut off before the first event knows where it was
	}
	var m message
	var data struct{ N int }
	err := json.Unmarshal([]byte(event.Data), &m)
	switch {
	case err == nil && m.Tenant != crawl.DefaultTenant:
		err = fmt.Errorf("an event of tenant %s", m.Tenant)
	case err == nil && m.Type == "order.placed":
		err = json.Unmarshal(m.Data, &data)
		b.orders = append(b.orders, data.N)
	case err == nil:
		b.runs[m.Key] = append(b.runs[m.Key], m.Sequence)
	}
	b.err = cmp.Or(b.err, err)
}

// has waits until the tab has so many of each.
func (b *tab) has(t *testing.T, orders int, events map[uuid.UUID]int, resets int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d orders, %v events, %d resets", orders, events, resets), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.err != nil {
			t.Fatal(b.err)
		}
		for run, n := range events {
			if len(b.runs[run.String()]) < n {
				return false
			}
		}
		return len(b.orders) >= orders && b.resets >= resets
	})
}

// Two runs and a topic over one connection: the runs as in streams of their own, the topic's events
// of the own tenant in the order of their delivery. A tab that comes back soon goes on where it
// was. When Redis was away it is told so, for the topic, and loses nothing of the runs.
func TestStreamOfTopics(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	s.deliverRuns(t)
	s.deliver(t, outbox.OutboxEvents(), "{topic}")
	n := s.serve(t, nil)
	first, second := s.start(t), s.start(t)
	b := &tab{url: n.server.URL + "/v1/stream?topics=run:" + first.String() + ",order.placed,run:" + second.String(),
		runs: map[string][]string{}}
	placed := 0
	order := func(count int) {
		for range count {
			placed++
			s.exec(t, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, tenant_id)
				SELECT 'order.placed', now(), 'Order', 'one', 'shop', jsonb_build_object('n', $1::int), tenant FROM unnest(ARRAY['other', 'default']) tenant`, placed)
		}
	}
	s.append(t, first, 20, 100)
	leave := b.watch(t)
	b.has(t, 0, map[uuid.UUID]int{first: 21, second: 1}, 0)
	order(10)
	s.append(t, second, 5, 100)
	b.has(t, 10, map[uuid.UUID]int{first: 21, second: 6}, 0)

	leave()
	order(5)
	s.append(t, first, 5, 100)
	s.eventually(t, "the orders are delivered", "SELECT count(*) = 0 FROM outbox_events WHERE status <> 'SENT'")
	leave = b.watch(t)
	b.has(t, 15, map[uuid.UUID]int{first: 26, second: 6}, 0)
	if b.resets != 0 {
		t.Error("a tab that came back soon was told that it missed something")
	}

	if err := s.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	s.append(t, first, 5, 100)
	b.has(t, 15, map[uuid.UUID]int{first: 31}, 0) // from the log, while Redis is away
	if err := s.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	b.has(t, 15, nil, 1)
	before := placed
	order(3)
	b.has(t, before+3, nil, 1)
	s.append(t, second, 4, 100)
	s.complete(t, first)
	s.complete(t, second)
	b.has(t, before+3, map[uuid.UUID]int{first: 32, second: 11}, 1)
	leave()
	for run, want := range map[uuid.UUID]int{first: 32, second: 11} {
		got := b.runs[run.String()]
		for i, seq := range got {
			if seq != fmt.Sprintf("%019d", i+1) {
				t.Errorf("run %s: place %d has event %s", run, i, seq)
			}
		}
		if len(got) != want {
			t.Errorf("run %s: %d events, want %d", run, len(got), want)
		}
	}
	if !slices.IsSorted(b.orders) || len(slices.Compact(slices.Clone(b.orders))) != len(b.orders) ||
		b.orders[len(b.orders)-1] != placed {
		t.Errorf("orders %v, want each once and in their order, up to %d", b.orders, placed)
	}
	if b.resets != 1 {
		t.Errorf("%d resets, want 1", b.resets)
	}
}

// A stream of runs alone ends with the last of them, and its id belongs to its list of topics.
func TestStreamOfTopicsEnds(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	n := s.serve(t, nil)
	first, second := s.start(t), s.start(t)
	s.complete(t, first)
	base := n.server.URL + "/v1/stream?topics="
	b := &tab{url: base + "run:" + first.String() + "&topics=run:" + second.String(), runs: map[string][]string{}}
	leave := b.watch(t)
	b.has(t, 0, map[uuid.UUID]int{first: 2, second: 1}, 0)
	s.complete(t, second)
	b.has(t, 0, map[uuid.UUID]int{first: 2, second: 2}, 0)
	eventually(t, "the stream has ended", func() bool { return n.StreamStats().Connections == 0 })
	leave()
	runs := "run:" + first.String() + ",run:" + second.String()
	for _, tt := range []struct {
		topics, id string
		status     int
	}{
		{runs, b.last, http.StatusNoContent},
		// In another order it means something else.
		{"run:" + second.String() + ",run:" + first.String(), b.last, http.StatusBadRequest},
		{runs, b.last[:strings.LastIndexByte(b.last, '.')] + ".3", http.StatusBadRequest}, // beyond the end
		{runs, "7", http.StatusBadRequest},
		{runs + "&fromSeq=1", "", http.StatusBadRequest},
		{runs + "," + runs, "", http.StatusBadRequest},
		{"", "", http.StatusBadRequest},
		{"run:x", "", http.StatusBadRequest},
		{"run:" + uuid.NewString(), "", http.StatusNotFound},
	} {
		var header []string
		if tt.id != "" {
			header = []string{"Last-Event-ID", tt.id}
		}
		if status, body := get(t, base+tt.topics, header...); status != tt.status {
			t.Errorf("topics %s after %q: %d %s, want %d", tt.topics, tt.id, status, body, tt.status)
		}
	}
}

// A tab that was away for longer than a topic is kept, or comes to another gateway, is told so; one
// of a run is not, since its log has everything.
func TestStreamOfTopicsAtAnotherGateway(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newStreams(t)
	s.deliver(t, outbox.OutboxEvents(), "{topic}")
	n, other := s.serve(t, nil), s.serve(t, nil)
	run := s.start(t)
	path := "/v1/stream?topics=order.placed,run:" + run.String()
	b := &tab{url: n.server.URL + path, runs: map[string][]string{}}
	leave := b.watch(t)
	b.has(t, 0, map[uuid.UUID]int{run: 1}, 0)
	leave()
	s.append(t, run, 2, 10)
	b.url = other.server.URL + path
	leave = b.watch(t)
	b.has(t, 0, map[uuid.UUID]int{run: 3}, 1)
	time.Sleep(50 * time.Millisecond) // for one reset too many
	leave()
	if b.resets != 1 || len(b.runs[run.String()]) != 3 {
		t.Errorf("%d resets and %v, want one and events 1 to 3", b.resets, b.runs)
	}
}
