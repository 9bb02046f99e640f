package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func TestRuns(t *testing.T) { onStores(t, testRuns) }

func testRuns(t *testing.T, e env) {
	e.redis = testenv.RedisServer(t).URL()
	g := e.serving("--auth", "none", "--parts=gateway")
	device := filepath.Join(t.TempDir(), "device.json")
	if err := os.WriteFile(device, []byte(`{"model": "Pixel 8"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	create := []string{"runs", "create", "--app", "shop", "--goal", "buy\na book", "--max-steps", "7", "--device", device,
		"--idempotency-key", "k1", "-o", "json"}
	first, again := decode[runView](t, g.ok("", create...)), decode[runView](t, g.ok("", create...))
	if first.RunID != again.RunID || first.Status != "PENDING" || !strings.HasSuffix(first.StreamURL, "/stream") {
		t.Errorf("got %+v, then %+v", first, again)
	}
	r := g.run("", append(create, "--goal", "another")...)
	if r.code != 1 || !strings.Contains(r.err, "the Idempotency-Key was used") {
		t.Errorf("the same key with another goal: exit code %d:\n%s", r.code, r.err)
	}
	contains(t, g.ok("", "runs", "show", first.RunID), `"buy\na book"`, "Pixel 8", "most steps      7", "PENDING")
	for range 2 {
		contains(t, g.ok("", "runs", "cancel", first.RunID), "CANCELLED")
	}

	// Pages of a list.
	for range 3 {
		g.ok("", "runs", "create", "--app", "other")
	}
	r = g.run("", "runs", "list", "--app", "other", "--limit", "2")
	after := r.err[strings.LastIndex(r.err, " ")+1:]
	if strings.Count(r.out, "PENDING") != 2 || !strings.Contains(r.err, "--after") {
		t.Errorf("got:\n%s%s", r.out, r.err)
	}
	if out := g.ok("", "runs", "list", "--app", "other", "--limit", "2", "--after",
		strings.TrimSpace(after)); strings.Count(out, "PENDING") != 1 {
		t.Errorf("the second page:\n%s", out)
	}
	if page := decode[struct{ Items []runView }](t,
		g.ok("", "runs", "list", "--status", "CANCELLED", "-o", "json")); len(page.Items) != 1 ||
		page.Items[0].RunID != first.RunID {
		t.Errorf("got %+v", page)
	}
	contains(t, g.ok("", "runs", "list", "--status", "CANCELLED", "-o", "json"), `"nextCursor": null`)
	contains(t, g.ok("", "runs", "list", "--app", "nobody", "-o", "json"), `"items": []`, `"nextCursor": null`)
	if next := decode[listOf[runView]](t, g.ok("", "runs", "list", "--app", "other", "--limit", "2", "-o",
		"json")).NextCursor; next != strings.TrimSpace(after) {
		t.Errorf("the next page is at %q, want %q", next, after)
	}
	if r := g.run("", "runs", "list", "--app", "nobody"); r.code != 0 || !strings.Contains(r.err, "no such runs") {
		t.Errorf("got %+v", r)
	}

	// Refusals.
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"create":                       {2, "--app is required"},
		"create --app shop --device {": {2, "--device"},
		"create --app shop --device /no/such.json": {1, "--device"},
		"create --app shop --device [] ":           {1, "--device"},
		"create --app shop --max-steps -1":         {1, "maxSteps"},
		"create --app shop --max-steps 0":          {1, "maxSteps is 0, must be between 1 and 100000"},
		"create --app shop --crawler nosuch":       {1, "choose one of external, demo"},
		"show 7":                                   {2, "no id of a run"},
		"show " + uuid.NewString():                 {1, "there is no such run"},
		"follow " + uuid.NewString():               {1, "there is no such run"},
		"follow --after -1 " + first.RunID:         {2, "--after"},
		"follow --after 99 " + first.RunID:         {1, "the gateway refuses"},
		"list --limit 501":                         {2, "--limit"},
		"list --status LOST":                       {1, "status"},
		"list --server 127.0.0.1:8080":             {2, "server is no address"},
		"list --server http://127.0.0.1:1":         {1, "is outbox serve running there?"},
		"":                                         {2, "say what to do"},
	} {
		r := g.run("", append([]string{"runs"}, strings.Fields(args)...)...)
		if r.code != want.code || r.out != "" || !strings.Contains(r.err, want.says) {
			t.Errorf("runs %s: exit code %d, want %d and %q:\n%s%s", args, r.code, want.code, want.says, r.out, r.err)
		}
	}
}

// What a token may not see, it does not see; and no message shows the token.
func TestRunsOfTenants(t *testing.T) {
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	g := e.serving("--parts=gateway")
	with := func(args ...string) env {
		made := decode[struct{ Token string }](t, e.ok("", append([]string{"token", "create", "-o", "json"}, args...)...))
		as := g.env
		as.extra = append(as.extra[:1:1], "OUTBOX_TOKEN="+made.Token)
		return as
	}
	shop, reader, other := with("--tenant", "shop", "--scope", "read,write"), with("--tenant", "shop", "--scope", "read"),
		with("--tenant", "other", "--scope", "read")
	id := decode[runView](t, shop.ok("", "runs", "create", "--app", "shop", "-o", "json")).RunID
	contains(t, reader.ok("", "runs", "list"), id)
	nobody := g.env
	nobody.extra = append(nobody.extra[:1:1], "OUTBOX_TOKEN=obx_"+strings.Repeat("a", 12)+"_"+strings.Repeat("b", 52))
	for _, c := range []struct {
		as   env
		args string
		says []string
	}{
		{reader, "create --app shop", []string{"lacks the scope write", "outbox token create"}},
		{shop, "cancel " + id, []string{"lacks the scope operate"}},
		{other, "show " + id, []string{"there is no such run"}},
		{other, "follow " + id, []string{"there is no such run"}},
		{nobody, "follow " + id, []string{"is not valid", "OUTBOX_TOKEN"}},
	} {
		r := c.as.run("", append([]string{"runs"}, strings.Fields(c.args)...)...)
		if r.code != 1 || strings.Contains(r.err, "obx_") {
			t.Errorf("%s: exit code %d:\n%s%s", c.args, r.code, r.out, r.err)
		}
		contains(t, r.err, c.says...)
	}
	if r := other.run("", "runs", "list"); strings.Contains(r.out, id) {
		t.Errorf("another tenant's run is listed:\n%s", r.out)
	}
}

// Whatever becomes of the gateway meanwhile: each event is printed once, in order.
func TestFollowAcrossRestarts(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	steady := e.serving("--auth", "none", "--parts=gateway,relay")
	run := steady.external()
	g := e.serving("--auth", "none", "--parts=gateway")
	address := strings.TrimPrefix(g.url, "http://")
	follow := g.start("runs", "follow", run, "-o", "json")
	follow.await(follow.out, "RUN_STARTED")
	printed := 1
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		steady.append(run, 100)
		printed += 100
		follow.awaitLines(follow.out, printed) // by this gateway: the one before is gone
		g.signal(end)
		g.wait()
		steady.append(run, 50)
		printed += 50
		g = e.serving("--auth", "none", "--parts=gateway", "--http", address)
	}
	steady.append(run, 100)
	steady.post("/v1/runs/"+run+"/complete", "{}")
	if code := follow.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	complete(t, e, run, follow.out.lines())
	if lost, back := strings.Count(follow.err.String(), "trying again"),
		strings.Count(follow.err.String(), "connected again"); lost > 3 || lost != back {
		t.Errorf("it said:\n%s", follow.err)
	}
}

// awaitLines waits until s has so many lines.
func (p *process) awaitLines(s *stream, n int) {
	p.t.Helper()
	for deadline := time.Now().Add(tier.Patience()); len(s.lines()) < n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%d lines, want %d", len(s.lines()), n)
		}
	}
}

func TestFollowEnds(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	g := e.serving("--auth", "none", "--parts=gateway,relay")
	run := g.external()
	g.append(run, 4)
	follow := g.start("runs", "follow", run)
	follow.await(follow.out, "    5  ACTION_EXECUTED")
	follow.signal(syscall.SIGINT)
	if code := follow.wait(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
	contains(t, follow.err.String(), "go on with: outbox runs follow "+run+" --after 5")

	g.post("/v1/runs/"+run+"/fail", `{"error":"the shop\nis closed"}`)
	for _, after := range []string{"5", "6"} { // with the last event still to come, and with nothing to come
		r := g.run("", "runs", "follow", run, "--after", after)
		if r.code != 1 || !strings.Contains(r.err, `failed: "the shop\nis closed"`) ||
			strings.Contains(r.out, "RUN_FAILED") != (after == "5") {
			t.Errorf("--after %s: exit code %d:\n%s%s", after, r.code, r.out, r.err)
		}
	}

	// A gateway that is not there yet is waited for.
	address := strings.TrimPrefix(g.url, "http://")
	g.signal(syscall.SIGTERM)
	g.wait()
	early := g.start("runs", "follow", run)
	early.await(early.err, "trying again")
	time.Sleep(time.Second)
	e.serving("--auth", "none", "--parts=gateway,relay", "--http", address)
	if code := early.wait(); code != 1 || strings.Count(early.err.String(), "trying again") != 1 {
		t.Errorf("exit code %d:\n%s", code, early.err)
	}
}

// A redirect of the server is an error, and its target does not get the token.
func TestRedirectsDoNotGetTheToken(t *testing.T) {
	t.Parallel()
	var heard atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	e := env{t: t, extra: []string{"OUTBOX_SERVER=" + server.URL, "OUTBOX_TOKEN=obx_secret"}}
	if r := e.run("", "runs", "list"); r.code == 0 || heard.Load() != 1 {
		t.Errorf("exit code %d, %d requests, want an error after one", r.code, heard.Load())
	}
}
