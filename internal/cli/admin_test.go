package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// asOperator asks the admin API, as whoever has the token if there is one.
func (g gatewayAt) asOperator(token, method, path string, body any) (status int, answer []byte) {
	g.env.t.Helper()
	return g.ask(token, method, "/v1/admin"+path, body)
}

// ask sends a request to the server, with the token if there is one.
func (g gatewayAt) ask(token, method, path string, body any) (status int, answer []byte) {
	g.env.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		g.env.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(g.env.t.Context(), method, g.url+path, bytes.NewReader(text))
	if err != nil {
		g.env.t.Fatal(err)
	}
	if method == http.MethodGet {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Timeout: tier.Patience()}).Do(r)
	if err != nil {
		g.env.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		g.env.t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// admin is asOperator without a token, of an answer that must be good.
func (g gatewayAt) admin(method, path string, body any) []byte {
	g.env.t.Helper()
	status, answer := g.asOperator("", method, path, body)
	if status >= 300 {
		g.env.t.Fatalf("%s %s: status %d: %s", method, path, status, answer)
	}
	return answer
}

type replayed struct {
	Total, Replayed, Skipped, Step, Failing, Dead, Delivered int
	Outcome, Says                                            string
}

// replays replays a set and returns the last event of the stream.
func (g gatewayAt) replays(body map[string]any) (last replayed) {
	g.env.t.Helper()
	answer, name := g.admin(http.MethodPost, "/letters/replay", body), ""
	for lines := bufio.NewScanner(bytes.NewReader(answer)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = text
		} else if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			last = decode[replayed](g.env.t, text)
		}
	}
	if name != "end" {
		g.env.t.Fatalf("the stream of a replay has no end:\n%s", answer)
	}
	return last
}

// What an operator sees and does over HTTP has its effect in the database. A replay acts on the set
// that was frozen, and stops itself while events fail again.
func TestAdmin(t *testing.T) { onStores(t, testAdmin) }

func testAdmin(t *testing.T, e env) {
	redis := testenv.RedisServer(t)
	e.redis = redis.URL()
	const letters = 30
	redisCommand(t, redis, "ACL SETUSER relay on >secret ~* +@all resetchannels &open")
	serving := e
	serving.redis = "redis://relay:secret@" + redis.Addr()
	g := serving.serving("--parts", "gateway,relay", "--auth", "none", "--admin", "write", "--environment",
		"test=#b91c1c",
		"--max-attempts", "2", "--backoff-base", "10ms")
	write := func(n int) {
		var lines []string
		for i := range n {
			lines = append(lines, fmt.Sprintf(`{"topic": "order.placed", "key": "%d", "payload": {}}`, i))
		}
		e.ok(strings.Join(lines, "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	}
	type preview struct {
		Letters int
		Set     string
	}
	look := func() preview {
		return decode[preview](t, string(g.admin(http.MethodPost, "/letters/preview", map[string]any{"all": true})))
	}
	died := func(n int) func() bool { return func() bool { return look().Letters == n } }
	write(letters)
	e.eventually("all events are dead", died(letters))

	contains(t, string(g.admin(http.MethodGet, "/session", nil)), `"environment":{"name":"test","colour":"#b91c1c"}`)
	contains(t, string(g.admin(http.MethodGet, "/overview", nil)), `"worst":"`, `"letters":{"pending":30`)
	contains(t, string(g.admin(http.MethodGet, "/letters/groups", nil)), `"count":30`)
	first := decode[dlqPage](t, string(g.admin(http.MethodGet, "/letters?limit=1", nil)))
	if len(first.Items) != 1 || first.NextCursor == "" {
		t.Fatalf("a page of letters is %+v", first)
	}
	contains(t, string(g.admin(http.MethodGet, "/events/"+first.Items[0].OriginalID, nil)),
		`"says":["it was written into`)

	// The cause is still there: of the first step all fail, and nothing else is touched.
	set := look()
	ask := map[string]any{"all": true, "set": set.Set, "steps": []int{1, 10}, "stopAt": 0.2, "reason": "too early"}
	if r := g.replays(ask); r.Outcome != "stopped" || r.Replayed != 1 || r.Failing+r.Dead != 1 {
		t.Fatalf("a replay of what fails again ended with %+v", r)
	}
	e.eventually("the one is dead again", died(letters))
	if status, answer := g.asOperator("", http.MethodPost, "/letters/replay", ask); status != http.StatusConflict {
		t.Fatalf("a set that has changed: status %d: %s", status, answer)
	}
	if r := e.run("", "dlq", "replay", "--all", "--yes", "--steps", "1,10"); r.code != 1 ||
		!strings.Contains(r.err, "stopped by itself") {
		t.Fatalf("outbox dlq replay --steps: exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	e.eventually("the one is dead again", died(letters))

	// With the cause gone all of the set are delivered, and what came after the preview stays.
	ask["set"] = look().Set
	late := e.ok(`{"topic": "order.late", "payload": {}}`, "write", "--jsonl")
	e.eventually("the late one is dead", died(letters+1))
	redisCommand(t, redis, "ACL SETUSER relay allchannels")
	ask["reason"] = "the channel is open"
	if r := g.replays(ask); r.Outcome != "done" || r.Replayed != letters || r.Step != 3 || r.Delivered != letters {
		t.Fatalf("a replay of all ended with %+v", r)
	}
	contains(t, e.ok("", "events", "--status", e.or("SENT", "SENT")), "order.placed")
	if left := look(); left.Letters != 1 {
		t.Fatalf("%d letters are left, want that of %s", left.Letters, late)
	}
	contains(t, string(g.admin(http.MethodGet, "/audit", nil)), `"reason":"the channel is open"`,
		`"actor":"somebody at the admin API"`)
	g.admin(http.MethodPost, "/letters/discard", map[string]any{"all": true, "set": look().Set, "reason": "not needed"})
	e.eventually("none is pending", died(0))

	testAdminOnEvents(t, e, g, write)
}

// testAdminOnEvents pauses, counts, skips and resumes.
func testAdminOnEvents(t *testing.T, e env, g gatewayAt, write func(int)) {
	pause := map[string]any{"table": "outbox_events", "topic": "order.placed"}
	if status, _ := g.asOperator("", http.MethodPost, "/pauses", pause); status != http.StatusBadRequest {
		t.Errorf("a pause without a reason: status %d", status)
	}
	pause["reason"] = "a look at it"
	g.admin(http.MethodPost, "/pauses", pause)
	contains(t, e.ok("", "pauses"), "a look at it")
	e.eventually("the overview has the pause", func() bool {
		return strings.Contains(string(g.admin(http.MethodGet, "/overview", nil)), `"topic":"order.placed"`)
	})
	// The command waits until the relay has confirmed the pause.
	e.ok("", "pause", "--table", "outbox_events", "--topic", "order.placed", "--reason", "a look at it")
	write(3)
	type count struct {
		Events int
		UpTo   int64
	}
	chosen := map[string]any{"topic": "order.placed"}
	seen := decode[count](t, string(g.admin(http.MethodPost, "/events/preview", chosen)))
	write(2)
	chosen["upTo"], chosen["reason"] = seen.UpTo, "they need not arrive"
	if did := decode[count](t, string(g.admin(http.MethodPost, "/events/skip", chosen))); did.Events != seen.Events {
		t.Errorf("skipped %d events, the preview had %d", did.Events, seen.Events)
	}
	delete(pause, "reason")
	g.admin(http.MethodPost, "/resume", pause)
	if status, _ := g.asOperator("", http.MethodPost, "/resume", pause); status != http.StatusNotFound {
		t.Errorf("what is not paused was resumed: status %d", status)
	}
	e.eventually("what was not skipped is delivered", func() bool {
		seen := decode[count](t, string(g.admin(http.MethodPost, "/events/preview", map[string]any{"all": true})))
		return seen.Events == 0
	})
	for path, body := range map[string]any{"/events/skip": map[string]any{"all": true, "reason": "x"},
		"/events/retry": map[string]any{}, "/letters/preview": map[string]any{},
		"/letters/replay": map[string]any{"all": true, "set": "short"},
		"/events/preview": map[string]any{"nothing": 1}} {
		if status, answer := g.asOperator("", http.MethodPost, path, body); status != http.StatusBadRequest {
			t.Errorf("POST %s of %v: status %d: %s", path, body, status, answer)
		}
	}
}

// A token of one tenant sees that tenant's events and letters alone, and a server that is read-only
// changes nothing.
func TestAdminTokens(t *testing.T) {
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	for _, tenant := range []string{"north", "south"} {
		e.ok(`{"topic": "a", "payload": {}, "tenant": "`+tenant+`"}`, "write", "--jsonl")
	}
	token := func(args ...string) string {
		made := e.ok("", append([]string{"token", "create", "-o", "json"}, args...)...)
		return decode[struct{ Token string }](t, made).Token
	}
	all := token("--tenant", "*", "--scope", "admin:read,admin:write")
	north, reader := token("--tenant", "north", "--scope", "admin:read"), token("--tenant", "north", "--scope", "read")
	if r := e.run("", "token", "create", "--tenant", "*", "--scope", "read"); r.code == 0 {
		t.Errorf("a token that reads for all tenants was made:\n%s", r.out)
	}
	g := e.serving("--parts", "gateway", "--admin", "read")
	for _, c := range []struct {
		token, method, path string
		body                any
		status              int
		says                string
	}{
		{all, "GET", "/events", nil, 200, `"tenant":"south"`},
		{all, "GET", "/overview", nil, 200, `"backlog":2`},
		{all, "GET", "/tables/outbox_events/lanes", nil, 200, `"table":"outbox_events"`},
		{all, "GET", "/tables/nothing/lanes", nil, 400, "nothing"},
		{all, "GET", "/tables/outbox_events/backlog?by=tenant", nil, 200, `"value":"south","waiting":1`},
		{all, "GET", "/events?table=outbox_events&status=new&limit=1", nil, 200, `"nextCursor"`},
		{all, "GET", "/events?status=NONE", nil, 400, "NONE"},
		{all, "POST", "/events/retry", map[string]any{"all": true}, 403, "read-only"},
		{all, "POST", "/pauses", map[string]any{"topic": "a", "reason": "x"}, 403, "read-only"},
		{north, "GET", "/events", nil, 200, `"tenant":"north"`},
		{north, "GET", "/events?tenant=south", nil, 403, "of tenant north alone"},
		{north, "GET", "/overview", nil, 403, "of tenant north"},
		{north, "POST", "/events/preview", map[string]any{"tenant": "north"}, 200, `"events":1`},
		{north, "POST", "/events/preview", map[string]any{"tenant": "south"}, 403, "of tenant north alone"},
		{north, "POST", "/events/preview", map[string]any{}, 400, "say which events"},
		{north, "POST", "/events/retry", map[string]any{"all": true}, 403, "admin:write"},
		{reader, "GET", "/events", nil, 403, "admin:read"},
		{"", "GET", "/events", nil, 401, ""},
		{all[:len(all)-1], "GET", "/events", nil, 401, ""},
	} {
		status, answer := g.asOperator(c.token, c.method, c.path, c.body)
		if status != c.status || !strings.Contains(string(answer), c.says) {
			t.Errorf("%s %s: status %d, want %d and %q: %s", c.method, c.path, status, c.status, c.says, answer)
		}
		if c.token == north && strings.Contains(string(answer), `"tenant":"south"`) {
			t.Errorf("%s %s tells north of south: %s", c.method, c.path, answer)
		}
	}
	off := e.serving("--parts", "gateway")
	if status, _ := off.asOperator(all, "GET", "/events", nil); status != 404 {
		t.Errorf("without --admin the API answers %d", status)
	}
}
