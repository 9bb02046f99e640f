package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// relaying starts a relay that can be watched.
func (e env) relaying(args ...string) (relay *process, url string) {
	e.t.Helper()
	relay = e.start(append([]string{"relay", "--listen", "127.0.0.1:0"}, args...)...)
	line := relay.await(relay.err, `"listening"`)
	return relay, "http://" + decode[struct{ Address string }](e.t, line).Address
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: tier.Patience()}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

type report struct {
	Ready  bool
	Reason string
	Tables map[string]struct {
		Ready  bool
		Reason string
		Lanes  int
	}
}

// awaitReady waits until /readyz answers as wanted, and returns the answer and how long it took, in
// the time of a machine that nobody else uses.
func awaitReady(t *testing.T, url string, ready bool, reason string) (report, time.Duration) {
	t.Helper()
	start := time.Now()
	var slow testenv.Slow
	for {
		slow.Look()
		code, body := get(t, url+"/readyz")
		r := decode[report](t, body)
		if (code == http.StatusOK) != r.Ready {
			t.Fatalf("status %d with %s", code, body)
		}
		if r.Ready == ready && strings.Contains(r.Reason, reason) {
			return r, slow.Shrink(time.Since(start))
		}
		if time.Since(start) > tier.Patience() {
			t.Fatalf("want ready %v and %q, got %s", ready, reason, body)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// From outbox write to outbox tail, in order, once; then SIGTERM.
func TestRelayEndToEnd(t *testing.T) { onStores(t, testRelayEndToEnd) }

func testRelayEndToEnd(t *testing.T, e env) {
	e.redis = testenv.RedisServer(t).URL()
	relay, url := e.relaying()
	awaitReady(t, url, true, "")
	const events = 1500
	tail := e.start("tail", "order.*", "-o", "json", "--count", fmt.Sprint(events))
	tail.await(tail.err, "subscribed to order.*")
	runs := e.start("tail", "run:00000000-0000-0000-0000-000000000001", "shop.audit", "--count", "2")
	runs.await(runs.err, "subscribed")

	e.ok(strings.Join(numbered(events), "\n"), "write", "--jsonl")
	e.ok("1", "write", "--topic", "audit", "--destination", "shop.audit")
	exec1(e, `INSERT INTO crawl_runs (id, app_package) VALUES ('00000000-0000-0000-0000-000000000001', 'shop')`)
	exec1(e,
		`INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('00000000-0000-0000-0000-000000000001', 'RUN_STARTED', '{}')`)

	if code := tail.wait(); code != 0 {
		t.Fatalf("tail: exit code %d", code)
	}
	last, seen := map[string]int{}, map[string]bool{}
	for _, line := range tail.out.lines() {
		m := decode[struct {
			Channel    string
			ReceivedAt time.Time `json:"received_at"`
			Message    struct {
				ID, Subject string
				Data        struct{ N int }
			}
		}](t, line)
		if m.Channel != "order.placed" || time.Since(m.ReceivedAt) > time.Minute || seen[m.Message.ID] {
			t.Errorf("unexpected or again: %s", line)
		}
		if before, ok := last[m.Message.Subject]; ok && m.Message.Data.N <= before {
			t.Errorf("key %s: %d after %d", m.Message.Subject, m.Message.Data.N, before)
		}
		last[m.Message.Subject], seen[m.Message.ID] = m.Message.Data.N, true
	}
	if len(seen) != events {
		t.Errorf("%d events arrived, want %d", len(seen), events)
	}
	runs.wait()
	contains(t, runs.out.String(), "run:00000000-0000-0000-0000-000000000001 {", `"type":"RUN_STARTED"`, "shop.audit {")

	_, text := get(t, url+"/metrics")
	counted := []string{fmt.Sprintf("outbox_published_total{table=\"outbox_events\"} %d\n", events+1),
		"outbox_published_total{table=\"crawl_outbox\"} 1\n"}
	counted = append(counted, fmt.Sprintf("outbox_delivery_latency_seconds_count{table=\"outbox_events\"} %d\n", events+1))
	missing := func() bool {
		return slices.ContainsFunc(counted, func(line string) bool { return !strings.Contains(text, line) })
	}
	for deadline := time.Now().Add(tier.Patience()); missing() && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond) // what has arrived is settled a moment later, each table's by a relay of its own
		_, text = get(t, url+"/metrics")
	}
	contains(t, text, counted...)
	contains(t, text, `outbox_lanes_held{table="event_outbox"} 64`,
		`outbox_backlog_events{table="outbox_events"}`, `outbox_oldest_undelivered_seconds{table="crawl_outbox"}`,
		`outbox_dead_total{table="outbox_events"} 0`,
		`outbox_delivery_latency_seconds_bucket{table="outbox_events",le="0.0005"}`, `le="60"`, "outbox_settle_seconds_sum",
		"go_goroutines")
	if code, _ := get(t, url+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: status %d", code)
	}

	relay.signal(syscall.SIGTERM)
	if code := relay.wait(); code != 0 {
		t.Errorf("relay: exit code %d after SIGTERM", code)
	}
	if n := query[int](e, `SELECT count(*) FROM outbox_lanes WHERE owner IS NOT NULL`); n != 0 {
		t.Errorf("%d lanes are not released", n)
	}
	for _, line := range relay.err.lines() {
		if !json.Valid([]byte(line)) {
			t.Errorf("the log is not JSON: %s", line)
		}
	}
	contains(t, relay.err.String(), `"tables":["outbox_events","event_outbox","crawl_outbox"]`, `"msg":"relayed"`,
		`"published":`, `"latency_p50_ms":`, `"failures":0`)
}

// A relay that stands still must not look healthy, also when it has nothing to do.
func TestRelayReadiness(t *testing.T) { onStores(t, testRelayReadiness) }

func testRelayReadiness(t *testing.T, e env) {
	redis := testenv.RedisServer(t)
	e.redis = redis.URL()
	relay, url := e.relaying("--table", "outbox_events")
	if r, _ := awaitReady(t, url, true, ""); r.Tables["outbox_events"].Lanes != 64 || len(r.Tables) != 1 {
		t.Errorf("got %+v", r)
	}
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, took := awaitReady(t, url, false, "Redis"); took > 10*time.Second {
		t.Errorf("it took %s to see that Redis is gone", took)
	}
	e.says(1, "ready --listen "+strings.TrimPrefix(url, "http://"), "not ready: ", "Redis")
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, url, true, "")
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	e.says(0, "ready --listen :"+port+" --part relay", "ready\n")
	e.says(1, "ready --listen 0.0.0.0:"+port+" --part gateway", "not ready: this process has no such part")
	e.says(2, "ready", `listen is "", want the address`)

	exec1(e, `ALTER TABLE outbox_events RENAME TO hidden`)
	awaitReady(t, url, false, "outbox_events")
	_, text := get(t, url+"/metrics")
	if strings.Contains(text, "outbox_backlog_events{") {
		t.Errorf("the backlog is reported although it is not known")
	}
	exec1(e, `ALTER TABLE hidden RENAME TO outbox_events`)
	awaitReady(t, url, true, "")

	relay.signal(syscall.SIGINT)
	if code := relay.wait(); code != 0 {
		t.Errorf("exit code %d after SIGINT", code)
	}
	e.says(1, "ready --listen 127.0.0.1:"+port, "connection refused")
}

// A daemon is often started before its servers.
func TestRelayWaitsForItsServers(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := migrated(t)
	redis := testenv.RedisServer(t)
	e.redis = redis.URL()
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	relay, url := e.relaying()
	relay.await(relay.err, "waiting for sink default (redis://")
	awaitReady(t, url, false, "sink default: not connected yet: connect to Redis")
	for _, command := range []string{"lanes", "sinks", "events"} {
		for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			out := e.ok("", command)
			if strings.HasPrefix(out, "NOT READY: sink default: not connected yet") {
				break
			}
			if time.Since(began) > tier.Patience() {
				t.Fatalf("outbox %s while its relay waits: %s", command, out)
			}
		}
	}
	if code, _ := get(t, url+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz while waiting: status %d", code)
	}
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, url, true, "")
	relay.signal(syscall.SIGTERM)
	if code := relay.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	e.database = "postgres://postgres@127.0.0.1:1/d"
	relay, _ = e.relaying()
	relay.await(relay.err, "waiting for database d at 127.0.0.1:1")
	relay.signal(syscall.SIGTERM)
	if code := relay.wait(); code != 0 {
		t.Errorf("told to stop while waiting: exit code %d", code)
	}
}

// What waiting does not cure ends the relay at once, with the remedy.
func TestRelayRefuses(t *testing.T) {
	t.Parallel()
	redis := testenv.RedisServer(t).URL()
	empty := env{t: t, database: testenv.Database(t), redis: redis}
	old := migrated(t)
	old.redis = redis
	exec1(old, `ALTER TABLE outbox_events DROP COLUMN generation`)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		env  env
		args []string
		code int
		says string
	}{
		{empty, nil, 1, "outbox migrate up"},
		{empty, []string{"--table", "crawl_outbox"}, 1, "outbox migrate up --set crawl"},
		{old, nil, 1, "lacks generation: run: outbox migrate up --set core"},
		{old, []string{"--table", "event_outbox", "--listen", taken.Addr().String()}, 1, "--listen"},
		{env{t: t, database: strings.Replace(old.database, "postgres@", "nobody@", 1), redis: redis}, nil, 1, "--database"},
		{env{t: t, database: old.database, redis: "http://h"}, []string{"--table", "crawl_outbox"}, 2,
			"no sink for URLs of http"},
	} {
		r := c.env.run("", append([]string{"relay"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s", c.args, r.code, c.code, c.says, r.err)
		}
	}
}

func TestRelayMappedTable(t *testing.T) {
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	exec1(e, `CREATE SCHEMA billing`)
	exec1(e,
		`CREATE TABLE billing.outbox (seq bigserial, event_id uuid NOT NULL DEFAULT gen_random_uuid(), kind text, body jsonb, invoice text, sent_at timestamptz, tries int DEFAULT 0, retry_at timestamptz)`)
	layout := filepath.Join(t.TempDir(), "layout.yaml")
	err := os.WriteFile(layout, []byte(`
- {table: billing.outbox, id: event_id, position: seq, topic: kind, payload: body, key: invoice, delivered_at: sent_at,
   attempts: tries, next_retry_at: retry_at, destination: "billing.{topic}"}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, url := e.relaying("--layouts", layout, "--table", "billing.outbox", "--envelope", "payload", "--dedup-window", "0")
	awaitReady(t, url, true, "")
	tail := e.start("tail", "billing.paid", "--count", "1")
	tail.await(tail.err, "subscribed")
	exec1(e, `INSERT INTO billing.outbox (kind, body, invoice) VALUES ('paid', '{"cents": 5}', 'i1')`)
	tail.wait()
	if got := tail.out.String(); got != "billing.paid {\"cents\": 5}\n" {
		t.Errorf("got %q", got)
	}
	contains(t, e.ok("", "events", "--layouts", layout, "--table", "billing.outbox"), "paid", "i1")
}

// The first signal waits for the batch in flight, here for a Redis that does not answer; the second
// does not.
func TestSecondSignalForces(t *testing.T) {
	t.Parallel()
	e := migrated(t)
	redis := testenv.RedisServer(t)
	e.redis = redis.URL()
	relay, url := e.relaying("--table", "outbox_events")
	awaitReady(t, url, true, "")
	if err := syscall.Kill(redis.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(redis.PID(), syscall.SIGCONT) }()
	e.ok("1", "write", "--topic", "a")
	time.Sleep(300 * time.Millisecond) // the relay claims it and waits for Redis
	relay.signal(syscall.SIGINT)
	relay.signal(syscall.SIGTERM) // as timeout(1) does, which signals twice: the same wish
	awaitReady(t, url, false, "stopping")
	select {
	case <-relay.ended:
		t.Fatal("the first signal did not wait for the batch")
	case <-time.After(300 * time.Millisecond):
	}
	relay.signal(syscall.SIGINT)
	if code := relay.wait(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	redis := testenv.RedisServer(t)
	e := env{t: t, redis: redis.URL()}
	plain := e.start("tail", "a", "a", "b*")
	plain.await(plain.err, "subscribed to a, b*")
	lines := e.start("tail", "a", "-o", "json", "--count", "2")
	lines.await(lines.err, "subscribed to a")
	publish(t, redis, "a", `{"n":1}`)
	publish(t, redis, "a", "two\x1b[31m")
	publish(t, redis, "bcd", "three")
	if code := lines.wait(); code != 0 {
		t.Errorf("exit code %d after --count messages", code)
	}
	contains(t, lines.out.String(), `"message":{"n":1}`, `"message":"two\u001b[31m"`)
	plain.await(plain.out, "bcd three")
	contains(t, plain.out.String(), `a {"n":1}`, `a "two\x1b[31m"`)

	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	plain.await(plain.err, "connection lost")
	e.eventually("it subscribes again", func() bool { return strings.Count(plain.err.String(), "subscribed to") >= 2 })
	publish(t, redis, "a", "four")
	plain.await(plain.out, "a four")
	plain.signal(syscall.SIGINT)
	if code := plain.wait(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}

// publish sends one message in Redis's own protocol, which needs no client.
func publish(t *testing.T, redis *testenv.Redis, channel, message string) {
	t.Helper()
	conn, err := net.Dial("unix", redis.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(channel), channel, len(message), message)
	if _, err := conn.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
}
