package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// gatewayAt is a running gateway and an environment whose commands speak to it.
type gatewayAt struct {
	env
	*process
	url string
}

// serving starts outbox serve and waits until the API is served. Whatever args say, the API's port
// is a free one unless they name it.
func (e env) serving(args ...string) gatewayAt {
	e.t.Helper()
	p := e.start(append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...)
	url := "http://" + decode[struct{ Address string }](e.t, p.await(p.err, `"serving the API"`)).Address
	at := e
	at.extra = append([]string{"OUTBOX_SERVER=" + url}, e.extra...)
	return gatewayAt{at, p, url}
}

// watching returns where a process serves its health.
func watching(p *process) string {
	return "http://" + decode[struct{ Address string }](p.t, p.await(p.err, `"listening"`)).Address
}

// post sends a request to the API and returns the body of an answer that must be good.
func (g gatewayAt) post(path, body string) string {
	g.env.t.Helper()
	client := http.Client{Timeout: tier.Patience()}
	resp, err := client.Post(g.url+path, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		g.env.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		g.env.t.Fatalf("POST %s: status %d, error %v: %s", path, resp.StatusCode, err, text)
	}
	return string(text)
}

type runView struct {
	RunID, Status, Tenant, Crawler, StreamURL string
	LastSeq                                   int64
}

// external creates and starts a run that the test drives.
func (g gatewayAt) external() (id string) {
	g.env.t.Helper()
	id = decode[runView](g.env.t, g.ok("", "runs", "create", "--app", "shop", "-o", "json")).RunID
	g.post("/v1/runs/"+id+"/start", "{}")
	return id
}

// append appends n events to a run.
func (g gatewayAt) append(run string, n int) {
	g.env.t.Helper()
	events := strings.TrimSuffix(strings.Repeat(`{"type":"ACTION_EXECUTED","payload":{"tap":true}},`, n), ",")
	g.post("/v1/runs/"+run+"/events", `{"events":[`+events+`]}`)
}

// cloudEvent is what follow -o json prints a line of.
type cloudEvent struct {
	Sequence, Type, Subject, TenantID string
}

// complete holds that lines are the events of a run from the first to the last that the table has,
// each once.
func complete(t *testing.T, e env, run string, lines []string) {
	t.Helper()
	for i, line := range lines {
		if ev := decode[cloudEvent](t, line); ev.Sequence != fmt.Sprintf("%019d", i+1) || ev.Subject != run {
			t.Fatalf("line %d is %s", i+1, line)
		}
	}
	if n := query[int](e, `SELECT count(*) FROM crawl_events WHERE crawl_id = $1`, run); n != len(lines) {
		t.Errorf("%d events were printed, the table has %d", len(lines), n)
	}
}

// All parts in one process: a run is created with a token, crawled by the worker, relayed, and
// followed to its end.
func TestServeEndToEnd(t *testing.T) { onStores(t, testServeEndToEnd) }

func testServeEndToEnd(t *testing.T, e env) {
	e.redis = testenv.RedisServer(t).URL()
	made := decode[struct{ Token string }](t,
		e.ok("", "token", "create", "--tenant", "shop", "--name", "web", "--scope", "read,write,operate", "-o", "json"))
	g := e.serving("--listen", "127.0.0.1:0")
	url := watching(g.process)
	awaitReady(t, url, true, "")
	for _, part := range []string{"gateway", "relay", "worker"} {
		if code, body := get(t, url+"/readyz/"+part); code != http.StatusOK {
			t.Errorf("%s: status %d: %s", part, code, body)
		}
	}

	r := g.run("", "runs", "list")
	if r.code != 1 || !strings.Contains(r.err, "send a token: Authorization: Bearer TOKEN\n") ||
		!strings.Contains(r.err, "OUTBOX_TOKEN") {
		t.Errorf("without a token: exit code %d:\n%s", r.code, r.err)
	}
	g.extra = append(g.extra, "OUTBOX_TOKEN="+made.Token)
	tail := e.start("tail", "run:*", "-o", "json")
	tail.await(tail.err, "subscribed")
	r = g.run("", "runs", "create", "--app", "shop.example", "--crawler", "script:short", "--device",
		`{"model":"Pixel 8"}`, "--follow", "-o", "json")
	if r.code != 0 {
		t.Fatalf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	id := strings.TrimPrefix(strings.TrimSpace(r.err), "run ")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	complete(t, e, id, lines)
	if last := decode[cloudEvent](t, lines[len(lines)-1]); last.Type != "RUN_COMPLETED" || last.TenantID != "shop" {
		t.Errorf("it ended with %+v", last)
	}
	tail.await(tail.out, "RUN_COMPLETED") // it went through Redis, too
	if published := tail.out.lines(); len(published) != len(lines) {
		t.Errorf("%d events were published, want %d", len(published), len(lines))
	}
	contains(t, g.ok("", "runs", "list", "--status", "completed", "--app", "shop.example"), id, "COMPLETED",
		"script:short")
	contains(t, g.ok("", "runs", "show", id), "Pixel 8", "last events", fmt.Sprintf("%5d  RUN_COMPLETED", len(lines)))

	_, text := get(t, url+"/metrics")
	contains(t, text, `outbox_http_requests_total{route="POST /v1/runs",status="201"} 1`,
		`outbox_http_requests_total{route="GET /v1/runs",status="401"} 1`,
		"outbox_streams_open 0", "outbox_stream_broker_up 1", fmt.Sprintf("outbox_stream_events_total %d\n", len(lines)),
		`outbox_runs_ended_total{status="COMPLETED"} 1`, "outbox_runs_crawling 0")

	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	contains(t, g.err.String(), "stopped serving the API", "stopped relaying", "stopped crawling runs")
	for _, secret := range []string{made.Token, made.Token[len(made.Token)-20:]} {
		if strings.Contains(g.err.String(), secret) {
			t.Error("the token is in the log")
		}
	}
}

// What waiting does not cure ends the process at once, with the remedy.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	redis := testenv.RedisServer(t).URL()
	e := migrated(t)
	e.redis = redis
	empty := env{t: t, database: testenv.Database(t), redis: redis}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	anybody := e
	anybody.database = strings.Replace(e.database, "postgres@", "serve_anybody@", 1)
	exec1(e,
		`DO $$ BEGIN CREATE ROLE serve_anybody LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	for _, c := range []struct {
		env  env
		args string
		code int
		says string
	}{
		{e, "--auth none --http 0.0.0.0:0", 2, "other machines can reach"},
		{e, "--parts=", 2, "nothing to serve"},
		{e, "--crawlers demo,script:nosuch", 2, `there is no "script:nosuch": known are demo, script:`},
		{e, "--destination crawl_outbox={topic}", 2, "before it has seen an event"},
		{e, "--http " + taken.Addr().String(), 1, "--http"},
		// The gateway's or the worker's, which says it first.
		{anybody, "--parts=gateway,worker --http 127.0.0.1:0", 1, "GRANT outbox_"},
		{anybody, "--parts=gateway --http 127.0.0.1:0", 1, "GRANT outbox_gateway"},
		{anybody, "--parts=worker", 1, "GRANT outbox_worker"},
		{empty, "--http 127.0.0.1:0", 1, "outbox migrate up"},
		{empty, "--parts=worker", 1, "outbox migrate up"},
		{env{t: t, database: e.database, redis: "http://h"}, "--http 127.0.0.1:0 --parts=gateway,worker", 2, "redis:"},
	} {
		r := c.env.run("", append([]string{"serve"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", c.args, r.code, c.code, c.says, r.err)
		}
		if strings.Contains(c.args, taken.Addr().String()) &&
			(strings.Contains(r.err, "crawling runs") || strings.Contains(r.err, "relaying")) {
			t.Errorf("%s: a part began:\n%s", c.args, r.err)
		}
	}
}

// Without Redis the gateway serves from the database, and only the relay waits.
func TestServeWithoutRedis(t *testing.T) {
	tier.Full(t)
	onStores(t, testServeWithoutRedis)
}

func testServeWithoutRedis(t *testing.T, e env) {
	redis := testenv.RedisServer(t)
	e.redis = redis.URL()
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	g := e.serving("--auth", "none", "--parts=gateway,relay", "--listen", "127.0.0.1:0")
	url := watching(g.process)
	awaitReady(t, url, false, "sink default: not connected yet: connect to Redis")
	// It finds out by itself that Redis is away.
	for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(20 * time.Millisecond) {
		code, body := get(t, url+"/readyz/gateway")
		if code == http.StatusOK && strings.Contains(body, "streams are read from the database") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the gateway: status %d: %s", code, body)
		}
	}
	if code, _ := get(t, url+"/readyz/worker"); code != http.StatusNotFound {
		t.Errorf("the worker, which is off: status %d", code)
	}
	run := g.external()
	follow := g.start("runs", "follow", run, "-o", "json")
	follow.await(follow.out, "RUN_STARTED")
	began := time.Now()
	g.append(run, 3)
	follow.await(follow.out, `"sequence":"0000000000000000004"`)
	t.Logf("without Redis an event was there after %s", time.Since(began).Round(time.Millisecond))

	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, url, true, "")
	g.post("/v1/runs/"+run+"/complete", "{}")
	if code := follow.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	complete(t, e, run, follow.out.lines())
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Errorf("serve: exit code %d", code)
	}
}

// Each part in a process of its own, with a database role of its own, does the same together.
func TestServePartsApart(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	e.ok("", "migrate", "roles")
	as := e.login
	made := decode[struct{ Token string }](t,
		e.owner().ok("", "token", "create", "--tenant", "shop", "--scope", "read,write", "-o", "json"))
	g := as("outbox_gateway").serving("--parts=gateway", "--public-url", "https://api.example.com/")
	g.extra = append(g.extra, "OUTBOX_TOKEN="+made.Token)
	contains(t, g.ok("", "runs", "create", "--app", "shop", "-o", "json"), `"https://api.example.com/v1/runs/`)
	relay := as("outbox_relay").start("serve", "--parts=relay")
	relay.await(relay.err, `"relaying"`)
	blind := as("outbox_worker")
	blind.redis = "" // a worker needs none
	worker := blind.start("serve", "--parts=worker")
	worker.await(worker.err, `"crawling runs"`)
	tail := e.start("tail", "run:*", "-o", "json")
	tail.await(tail.err, "subscribed")
	r := g.run("", "runs", "create", "--app", "shop", "--crawler", "script:short", "--follow")
	if r.code != 0 || !strings.Contains(r.out, "RUN_COMPLETED") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	tail.await(tail.out, "RUN_COMPLETED")
	for _, p := range []*process{g.process, relay, worker} {
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// A database that is not there yet is waited for by all parts, and its password stays where it is.
func TestServeWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: "postgres://u:hunter2@127.0.0.1:1/d", redis: "redis://u:hunter2@127.0.0.1:1/0"}
	p := e.start("serve", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0")
	url := watching(p)
	awaitReady(t, url, false, "waiting for database d at 127.0.0.1:1")
	p.await(p.err, `"part":"worker"`)
	for _, part := range []string{"gateway", "relay", "worker"} {
		if code, body := get(t, url+"/readyz/"+part); code != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d: %s", part, code, body)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 || strings.Contains(p.err.String(), "hunter2") {
		t.Errorf("exit code %d:\n%s", code, p.err)
	}
}

// A stream that is open does not keep the process: it ends within the window, and the client goes
// on elsewhere.
func TestServeDrainsStreams(t *testing.T) { onStores(t, testServeDrainsStreams) }

func testServeDrainsStreams(t *testing.T, e env) {
	e.redis = testenv.RedisServer(t).URL()
	g := e.serving("--auth", "none", "--parts=gateway,relay")
	run := g.external()
	var follows []*process
	for range 3 {
		f := g.start("runs", "follow", run, "-o", "json")
		f.await(f.out, "RUN_STARTED")
		follows = append(follows, f)
	}
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 || strings.Contains(g.err.String(), "did not let them end in time") {
		t.Errorf("exit code %d:\n%s", code, g.err)
	}
	follows[0].await(follows[0].err, "trying again")
	other := e.serving("--auth", "none", "--parts=gateway,relay", "--http", strings.TrimPrefix(g.url, "http://"))
	other.append(run, 2)
	other.post("/v1/runs/"+run+"/cancel", "")
	for _, f := range follows {
		if code := f.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		complete(t, e, run, f.out.lines())
	}
}

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
	tier.Full(t)
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
		e.says(2, c.args, c.says)
	}
}

// topic returns the lines of a topic's stream, from when it is open.
func (g gatewayAt) topic(name string) (lines *bufio.Scanner) {
	g.env.t.Helper()
	req, err := http.NewRequestWithContext(g.env.t.Context(), http.MethodGet, g.url+"/v1/stream?topics="+name, nil)
	if err != nil {
		g.env.t.Fatal(err)
	}
	resp, err := (&http.Client{Timeout: tier.Patience()}).Do(req)
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

// A login that may connect and nothing else takes every advisory lock that it can guess. No request
// waits for one. Requests of a tenant that are stuck, here behind the row of its run, leave
// connections to the others.
func TestServeBesideStrangersLocks(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	g := e.serving("--parts=gateway")
	token := func(tenant string) string {
		return decode[struct{ Token string }](t, e.ok("", "token", "create", "-o", "json", "--tenant", tenant, "--scope",
			"read,write")).Token
	}
	ask := func(method, path, token, body string) (status int, text string) {
		r, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		answer, err := (&http.Client{Timeout: tier.Patience()}).Do(r)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer answer.Body.Close()
		said, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(said)
	}
	acme, beta := token("acme"), token("beta")

	stranger := "stranger_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	exec1(e, "CREATE ROLE "+stranger+" LOGIN")
	config, err := pgx.ParseConfig(e.database)
	if err != nil {
		t.Fatal(err)
	}
	config.User = stranger
	locks, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = locks.Close(context.Background())
		conn, err := pgx.Connect(context.Background(), e.database)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close(context.Background()) }()
		if _, err := conn.Exec(context.Background(), "DROP ROLE "+stranger); err != nil {
			t.Error(err)
		}
	})
	_, err = locks.Exec(t.Context(), `SELECT pg_advisory_lock(class, hashtext(tenant))
		FROM generate_series(1869968480, 1869968512) AS class, unnest(ARRAY['acme', 'beta', 'default']) AS tenant`)
	if err != nil {
		t.Fatal(err)
	}
	status, body := ask("POST", "/v1/runs", acme, `{"appPackage": "a"}`)
	if status != http.StatusCreated {
		t.Fatalf("a run beside a stranger's locks: status %d: %s", status, body)
	}
	run := decode[runView](t, body).RunID

	row, err := pgx.Connect(t.Context(), e.database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = row.Close(context.Background()) }()
	if _, err := row.Exec(t.Context(), "BEGIN; SELECT FROM crawl_runs FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var stuck sync.WaitGroup
	for range 12 {
		stuck.Go(func() {
			if status, body := ask("POST", "/v1/runs/"+run+"/start", acme, "{}"); status >= http.StatusInternalServerError &&
				status != http.StatusServiceUnavailable {
				t.Errorf("status %d: %s", status, body)
			}
		})
	}
	const waiting = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	e.eventually("the tenant's requests are stuck", func() bool { return query[int](e, waiting) >= 4 })
	status, body = ask("GET", "/v1/runs?limit=1", beta, "")
	if n := query[int](e, waiting); status != http.StatusOK || n > 4 {
		t.Errorf("another tenant's list: status %d, %d sessions are stuck: %s", status, n, body)
	}
	if _, err := row.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Error(err)
	}
	stuck.Wait()
	if status, body := ask("GET", "/v1/runs/"+run, acme, ""); status != http.StatusOK ||
		!strings.Contains(body, `"RUNNING"`) {
		t.Errorf("status %d: %s", status, body)
	}
}

// A server without tables of runs, and without a sink, serves the page, the admin API and its other requests. Requests
// for runs name the set that makes the tables.
func TestServeWithoutRuns(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: testenv.Database(t)}
	e.ok("", "migrate", "up", "--set", "core")
	g := e.serving("--parts", "gateway", "--auth", "none", "--admin", "read")
	id := "/v1/runs/" + uuid.NewString()
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		says         string
	}{
		{"GET", "/ui/", nil, 200, "<html"},
		{"GET", "/v1/admin/overview", nil, 200, `"table":"outbox_events"`},
		{"GET", "/v1/admin/events", nil, 200, `"items":[]`},
		{"GET", "/v1/runs", nil, 404, "outbox migrate up --set crawl"},
		{"POST", "/v1/runs", map[string]any{"appPackage": "p"}, 404, "outbox migrate up --set crawl"},
		{"GET", id, nil, 404, "outbox migrate up --set crawl"},
		{"POST", id + "/start", map[string]any{}, 404, "outbox migrate up --set crawl"},
		{"POST", id + "/events", map[string]any{"events": []any{map[string]any{"type": "A"}}}, 404, "--set crawl"},
		{"GET", id + "/events", nil, 404, "outbox migrate up --set crawl"},
		{"GET", id + "/stream", nil, 404, "outbox migrate up --set crawl"},
	} {
		status, answer := g.ask("", c.method, c.path, c.body)
		if status != c.status || !strings.Contains(string(answer), c.says) {
			t.Errorf("%s %s: status %d, want %d and %q: %s", c.method, c.path, status, c.status, c.says, answer)
		}
	}
}
