package cli_test

import (
	"bufio"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// Without any broker: what the relay delivers is in the streams of the process, and got there live.
func TestServeMemory(t *testing.T) { onStores(t, testServeMemory) }

func testServeMemory(t *testing.T, e env) {
	g := e.serving("--sink", "memory:", "--auth", "none", "--listen", "127.0.0.1:0",
		"--crawlers", "script:short")
	url := watching(g.process)
	awaitReady(t, url, true, "")
	topic := g.topic("order.placed")
	id := strings.TrimSpace(e.ok(`{"total":12}`, "write", "--topic", "order.placed", "--key", "42"))
	awaitLine(t, topic, id)

	r := g.run("", "runs", "create", "--app", "shop", "--crawler", "script:short", "--follow", "-o", "json")
	if r.code != 0 {
		t.Fatalf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	complete(t, e, strings.TrimPrefix(strings.TrimSpace(r.err), "run "), strings.Split(strings.TrimSpace(r.out), "\n"))
	_, text := get(t, url+"/metrics")
	contains(t, text, "outbox_stream_broker_up 1")
	if strings.Contains(text, "outbox_stream_live_total 0\n") {
		t.Error("no event came live")
	}
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	contains(t, g.err.String(), `"sink":{"default":"memory:"}`, "stopped serving the API", "stopped relaying")
}

// Two sinks: runs stay in the process, and topics go to Redis. The gateway hears both.
func TestServeTwoSinks(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: stores["sqlite"](t), redis: testenv.RedisServer(t).URL()}
	e.ok("", "migrate", "up", "--set", "core,crawl")
	g := e.serving("--sink", "default="+e.redis, "--sink", "live=memory:", "--routes", "crawl_outbox=live",
		"--auth", "none", "--listen", "127.0.0.1:0", "--crawlers", "script:short")
	url := watching(g.process)
	awaitReady(t, url, true, "")
	tail := e.start("tail", "order.placed", "run:*")
	tail.await(tail.err, "subscribed")
	topic := g.topic("order.placed")
	id := strings.TrimSpace(e.ok(`{"total":12}`, "write", "--topic", "order.placed"))
	awaitLine(t, topic, id)
	tail.await(tail.out, id)
	r := g.run("", "runs", "create", "--app", "shop", "--crawler", "script:short", "--follow", "-o", "json")
	if r.code != 0 {
		t.Fatalf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	complete(t, e, strings.TrimPrefix(strings.TrimSpace(r.err), "run "), strings.Split(strings.TrimSpace(r.out), "\n"))
	if strings.Contains(tail.out.String(), "RUN_") {
		t.Errorf("the run is at Redis too:\n%s", tail.out)
	}
	_, text := get(t, url+"/metrics")
	contains(t, text, "outbox_stream_broker_up 1", `outbox_sink_down{sink="default"} 0`, `outbox_sink_down{sink="live"} 0`)
	if strings.Contains(text, "outbox_stream_live_total 0\n") {
		t.Error("no event came live")
	}
	_, ready := get(t, url+"/readyz")
	contains(t, ready, `"sinks":{"default":{"ready":true},"live":{"ready":true}}`)
}

// Where memory cannot be meant, the command says what to do instead.
func TestMemoryRefused(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: testenv.Database(t)}
	for _, c := range []struct {
		args string
		says string
	}{
		{"serve --sink memory://h", "the URL is memory: and no more"},
		{"serve --sink memory: --parts=gateway,worker", "serve both"},
		{"relay --sink memory:", "outbox serve"},
		{"tail order.placed --sink memory:", "/v1/stream?topics="},
	} {
		if r := e.run("", strings.Fields(c.args)...); r.code != 2 || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: exit code %d, want 2 and %q:\n%s", c.args, r.code, c.says, r.err)
		}
	}
}

// topic returns the lines of a topic's stream, from when it is open.
func (g gatewayAt) topic(name string) (lines *bufio.Scanner) {
	g.env.t.Helper()
	req, err := http.NewRequestWithContext(g.env.t.Context(), http.MethodGet, g.url+"/v1/stream?topics="+name, nil)
	if err != nil {
		g.env.t.Fatal(err)
	}
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		g.env.t.Fatal(err)
	}
	g.env.t.Cleanup(func() { _ = resp.Body.Close() }) // nothing is lost with it
	if resp.StatusCode != http.StatusOK {
		g.env.t.Fatalf("stream of %s: status %d", name, resp.StatusCode)
	}
	return bufio.NewScanner(resp.Body)
}

// awaitLine reads until a line contains text.
func awaitLine(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the stream ended without %q: %v", text, lines.Err())
}
