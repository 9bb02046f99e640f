package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/server/token"
)

// fault is something that happens to a page while it shows a run.
type fault struct {
	name string
	cuts bool // the page has to connect again; else it must not
	do   func(*watching)
}

var (
	withinEvent = fault{"the connection is cut within an event", true, func(v *watching) { v.front.cutStream() }}
	allClosed   = fault{"all connections of the page are closed", true,
		func(v *watching) { v.front.CloseClientConnections() }}
	loadedAgain = fault{"the page is loaded again", true, func(v *watching) { v.reload() }}
	restarted   = fault{"the gateway is stopped, and another one started", true, func(v *watching) {
		v.gateway.stop()
		time.Sleep(300 * time.Millisecond) // the page gets an answer from the proxy, that there is none
		v.gateway.start(v.t)
	}}
	redisDown = fault{"Redis is killed, and restarted", false, func(v *watching) {
		noError(v.t, v.redis.Kill())
		v.progress(100) // meanwhile the log is read
		noError(v.t, v.redis.Restart())
	}}
)

// The page of examples/browser, served by its program, in a real browser: whatever happens on the
// way, each event is shown once, in order. A native EventSource comes back by itself, with its
// Last-Event-ID.
func TestBrowserShowsEachEventOnce(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	v := watch(t, nil)
	v.suffer(800, withinEvent, allClosed, loadedAgain, restarted, redisDown, allClosed, withinEvent)
	// Not after the two that begin with a new EventSource: loading again, and a 502.
	if n := v.front.resumed.Load(); n < 4 {
		t.Errorf("the browser sent Last-Event-ID %d times, want it after each lost connection", n)
	}
}

// With authentication a connection cannot be made again with its URL, because the ticket in it is
// used up: the page gets another one.
func TestBrowserWithTickets(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	tok, text, sum, err := token.New("shop", "page", []token.Scope{token.Read})
	noError(t, err)
	v := watch(t, func(store *pgstore.Tokens) (tenant, secret string) {
		if _, err := store.CreateToken(t.Context(), "test", tok, sum, 0); err != nil {
			t.Fatal(err)
		}
		return "shop", text
	})
	v.suffer(400, withinEvent, loadedAgain, allClosed)
	if refused, tickets, streams := v.front.refused.Load(), v.front.tickets.Load(),
		v.front.streams.Load(); refused < 2 || tickets < streams {
		t.Errorf("%d streams with %d tickets, and %d refused, want a ticket for each and one refused after each lost "+
			"connection", streams, tickets, refused)
	}
	if page := v.front.page.Load(); page == nil || bytes.Contains(*page, []byte(text)) {
		t.Error("the page holds the token")
	}
}

// The example makes a run of its own if it is not told which to show.
func TestBrowserExampleMakesARun(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	s.runs = crawl.NewService(s.store, crawl.ServiceConfig{Crawlers: []string{"demo"}})
	g := gatewayAt{streams: s}
	g.start(t)
	address := startExample(t, g.address, "", "")
	id, err := uuid.Parse(address.Query().Get("run"))
	noError(t, err)
	if run, err := s.runs.Get(t.Context(), crawl.DefaultTenant, id); err != nil || run.Crawler != "demo" {
		t.Errorf("the run is %+v, %v", run, err)
	}
}

// watching is a run, and a page in a browser that shows it.
type watching struct {
	*streams
	t       *testing.T
	gateway *gatewayAt
	front   *front
	browser *testenv.Chromium
	tenant  string
	run     uuid.UUID
	until   time.Time // everything must be over by then
	began   time.Time
}

// watch shows a new run. With login, the gateway asks for a token, and login gives the page's
// server one.
func watch(t *testing.T, login func(*pgstore.Tokens) (tenant, secret string)) *watching {
	t.Helper()
	v := &watching{streams: newStreams(t), t: t, tenant: crawl.DefaultTenant, began: time.Now()}
	v.deliverRuns(t)
	v.gateway = &gatewayAt{streams: v.streams}
	var secret string
	if login != nil {
		tokens := must(pgstore.OpenTokens(t.Context(), v.pool))(t)
		v.gateway.auth = &token.Authenticator{Store: tokens}
		v.tenant, secret = login(tokens)
	}
	v.gateway.start(t)
	v.run = v.startOf(t, v.tenant)
	address := startExample(t, v.gateway.address, secret, v.run.String())
	v.front = newFront(t, address)
	v.browser = testenv.ChromiumBrowser(t)
	noError(t, v.browser.Open(t.Context(), v.front.URL+"/?"+address.RawQuery))
	// It takes 18 s (measured, 2 busy cores). One that is busier is no failure: to build the
	// example and to start the browser beside other tests has taken minutes.
	v.until = time.Now().Add(6 * time.Minute)
	return v
}

// suffer appends at least n events, 200 a second if the page keeps up, while one fault after the
// other happens to the page, and compares what it shows with the log.
func (v *watching) suffer(n int, faults ...fault) {
	v.t.Helper()
	over, appended := make(chan struct{}), make(chan error, 1)
	go func() { appended <- v.produce(n, over) }()
	for _, f := range faults {
		v.progress(100)
		before := v.front.streams.Load()
		f.do(v)
		if f.cuts {
			v.wait("a new stream after: "+f.name, func(report) bool { return v.front.streams.Load() > before })
		}
		v.progress(100)
		if now := v.front.streams.Load(); !f.cuts && now > before {
			v.t.Errorf("%s: and the page had to connect again", f.name)
		}
	}
	faulty := time.Since(v.began)
	close(over)
	noError(v.t, <-appended)
	if _, err := v.runs.Complete(v.t.Context(), v.tenant, v.run); err != nil {
		v.t.Fatal(err)
	}
	v.wait("the page to show the end", report.ended)
	v.compare()

	// Loaded again after the end, the page shows the same, and asks for nothing.
	streams := v.front.streams.Load()
	v.reload()
	v.wait("the page to show the end again", report.ended)
	v.compare()
	if now := v.front.streams.Load(); now != streams {
		v.t.Errorf("after the end the page opened %d streams", now-streams)
	}
	last := v.front.last()
	if last.Heap == 0 || last.Heap > 64<<20 {
		v.t.Errorf("the page uses %d bytes of memory", last.Heap)
	}
	v.t.Logf("%s: %d events, %d faults in %s, %d streams, all in %s; the page's heap is %.1f MB", v.browser.Version(),
		last.Count, len(faults),
		faulty.Round(100*time.Millisecond), streams, time.Since(v.began).Round(100*time.Millisecond), float64(last.Heap)/1e6)
}

// produce appends events until there are n and over is closed.
func (v *watching) produce(n int, over <-chan struct{}) error {
	types := []string{crawl.NodeStart, crawl.ActionExecuted, crawl.ScreenshotCaptured, crawl.Processing,
		crawl.ErrorOccurred, crawl.NodeComplete}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; time.Now().Before(v.until); {
		<-tick.C
		if i > v.front.last().Count+400 {
			continue // a browser on a busy machine gets the events that the test asks for, not ever more
		}
		events := make([]crawl.NewEvent, 4)
		for k := range events {
			i++
			events[k].Type = types[i%len(types)]
			events[k].Payload = json.RawMessage(fmt.Sprintf(`{"n": %d, "said": "<b>déjà</b> & \"vu\"\nid: 7"}`, i))
		}
		if _, err := v.runs.Append(v.t.Context(), v.tenant, v.run, events...); err != nil {
			return err
		}
		select {
		case <-over:
			if i >= n {
				return nil
			}
		default:
		}
	}
	return errors.New("append events: the time is over")
}

// reload has the page load itself again, and waits until it has.
func (v *watching) reload() {
	v.t.Helper()
	loads := v.front.last().Loads
	v.front.reload.Store(true)
	v.wait("the page to be loaded again", func(r report) bool { return r.Loads > loads })
}

// progress waits until the page shows n events more.
func (v *watching) progress(n int) {
	v.t.Helper()
	from := v.front.last().Count
	v.wait(fmt.Sprintf("%d more events on the page", n), func(r report) bool { return r.Count >= from+n })
}

func (v *watching) wait(what string, ok func(report) bool) {
	v.t.Helper()
	for !ok(v.front.last()) {
		if time.Now().After(v.until) {
			last := v.front.last()
			v.t.Fatalf("waited too long for %s: the page shows %d events and %q, loaded %d times; %d streams, %d refused", what,
				last.Count, last.State, last.Loads,
				v.front.streams.Load(), v.front.refused.Load())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// compare compares what the page shows with the log.
func (v *watching) compare() {
	v.t.Helper()
	shown := v.front.last().Events
	var after int64
	for {
		events, err := v.runs.Events(v.t.Context(), v.tenant, v.run, after, 1000)
		noError(v.t, err)
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			after = e.Seq
			var data bytes.Buffer
			noError(v.t, json.Compact(&data, e.Payload))
			if int64(len(shown)) < e.Seq {
				v.t.Fatalf("the page shows %d events, and not %d", len(shown), e.Seq)
			}
			got := shown[e.Seq-1]
			if got.Seq != e.Seq || !strings.HasPrefix(got.Text, e.Type+" 2") ||
				!strings.HasSuffix(got.Text, "Z "+data.String()) {
				seqs := make([]int64, 0, 10)
				for _, s := range shown[max(0, e.Seq-5):min(e.Seq+5, int64(len(shown)))] {
					seqs = append(seqs, s.Seq)
				}
				v.t.Fatalf("the page shows %+v as event %d, around it %v; the log has %s %s", got, e.Seq, seqs, e.Type,
					data.String())
			}
		}
	}
	if int64(len(shown)) != after || !crawl.Terminal(strings.Fields(shown[after-1].Text)[0]) {
		v.t.Fatalf("the page shows %d events of %d", len(shown), after)
	}
	if n := v.front.last().Markup; n > 0 {
		v.t.Errorf("the page took text of payloads for %d elements", n)
	}
}
