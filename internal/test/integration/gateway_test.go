package integration

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/gateway"
)

// A run from its creation to its end, with the names and status codes of the issue.
func TestGatewayDrivesARun(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	made := a.want(201, "POST", "/v1/runs",
		`{"appPackage":"com.example.shop","deviceConfig":{"os":"android","dpi":1.50},"maxSteps":7,"goal":"buy a lamp"}`)
	path := "/v1/runs/" + made.field("runId")
	if names := keys(t, made.body); names != "createdAt,runId,status,streamUrl" || made.field("status") != "PENDING" ||
		made.field("streamUrl") != path+"/stream" ||
		made.header.Get("Location") != path || made.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%s %v", made.body, made.header)
	}
	shown := a.want(200, "GET", path, "")
	for field, want := range map[string]string{
		"runId": made.field("runId"), "tenant": "shop", "status": "PENDING", "appPackage": "com.example.shop",
		"deviceConfig.os": "android", "deviceConfig.dpi": "1.50",
		"maxSteps": "7", "goal": "buy a lamp", "crawler": "external", "createdAt": made.field("createdAt"), "startedAt": "",
		"lastSeq": "0", "streamUrl": path + "/stream",
	} {
		if got := shown.field(field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if empty := a.want(200, "GET", path+"/events", ""); string(empty.body) != `{"items":[]}`+"\n" {
		t.Errorf("events of a new run: %s", empty.body)
	}
	started := a.want(200, "POST", path+"/start", "")
	if started.field("status") != "RUNNING" || started.field("startedAt") == "" || started.field("lastSeq") != "1" {
		t.Errorf("started: %s", started.body)
	}
	added := a.want(201, "POST", path+"/events",
		`{"events":[{"type":"ACTION_EXECUTED","payload":{"x":1.50,"big":1e400,"text":"<é>"}},{"type":"NODE_COMPLETE"}]}`)
	if string(added.body) != `{"firstSeq":2,"lastSeq":3}`+"\n" {
		t.Errorf("appended: %s", added.body)
	}
	done := a.want(200, "POST", path+"/complete", "{}")
	if done.field("status") != "COMPLETED" || done.field("completedAt") == "" || done.field("lastSeq") != "4" {
		t.Errorf("completed: %s", done.body)
	}
	events := a.want(200, "GET", path+"/events?limit=2", "")
	if events.field("nextCursor") != "2" || events.field("items.0.type") != "RUN_STARTED" ||
		events.field("items.0.seq") != "1" || events.field("items.1.seq") != "2" {
		t.Errorf("events: %s", events.body)
	}
	rest := a.want(200, "GET", path+"/events?limit=3&after="+events.field("nextCursor"), "")
	var page struct {
		Items []json.RawMessage
		Next  string `json:"nextCursor"`
	}
	if err := json.Unmarshal(rest.body, &page); err != nil || len(page.Items) != 2 || page.Next != "" ||
		rest.field("items.1.type") != "RUN_COMPLETED" {
		t.Fatalf("second page: %s, %v", rest.body, err)
	}
	if names := keys(t, page.Items[0]); names != "createdAt,id,payload,seq,type" ||
		rest.field("items.0.payload") != "map[]" {
		t.Errorf("an event is %s", page.Items[0])
	}
	if payload := events.field("items.1.payload.big"); len(payload) != 401 ||
		events.field("items.1.payload.x") != "1.50" || events.field("items.1.payload.text") != "<é>" {
		t.Errorf("the payload is another: %s", events.body)
	}
}

// keys returns the names of an object, sorted.
func keys(t *testing.T, b []byte) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func TestGatewayChangesOfARun(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a := newAPI(t)
	events := `{"events":[{"type":"PROCESSING"}]}`
	pending, running := a.newRun(false), a.newRun(true)
	for _, do := range []string{"/complete", "/events"} {
		if r := a.want(409, "POST", pending+do,
			map[string]string{"/events": events}[do]); !strings.Contains(r.field("detail"), "start it first") {
			t.Errorf("%s of a PENDING run: %s", do, r.body)
		}
	}
	a.want(409, "POST", pending+"/fail", `{"error":"x"}`)
	a.want(200, "POST", running+"/start", "") // it is RUNNING
	failed := a.want(200, "POST", running+"/fail", `{"error":"no network"}`)
	if failed.field("status") != "FAILED" || failed.field("error") != "no network" || failed.field("completedAt") == "" {
		t.Errorf("failed: %s", failed.body)
	}
	if again := a.want(200, "POST", running+"/fail", `{"error":"other"}`); again.field("error") != "no network" ||
		again.field("lastSeq") != failed.field("lastSeq") {
		t.Errorf("failed again: %s", again.body)
	}
	for do, status := range map[string]int{"/start": 409, "/complete": 409, "/cancel": 400} {
		if r := a.want(status, "POST", running+do, ""); !strings.Contains(r.field("detail"), "FAILED") {
			t.Errorf("%s of a FAILED run: %s", do, r.body)
		}
	}
	a.want(409, "POST", running+"/events", events)
	for range 2 {
		if r := a.want(200, "POST", pending+"/cancel", ""); r.field("status") != "CANCELLED" ||
			r.field("cancelledAt") == "" || r.field("lastSeq") != "1" {
			t.Errorf("cancelled: %s", r.body)
		}
	}
	a.want(409, "POST", pending+"/start", "")

	demo := "/v1/runs/" + a.want(201, "POST", "/v1/runs", `{"appPackage":"p","crawler":"demo"}`).field("runId")
	for do, body := range map[string]string{"/events": events, "/complete": ""} {
		if r := a.want(409, "POST", demo+do, body); !strings.Contains(r.field("detail"), "demo") {
			t.Errorf("%s of a worker's run: %s", do, r.body)
		}
	}

	unknown := "/v1/runs/" + uuid.NewString()
	for _, c := range [][3]string{{"GET", "", ""}, {"GET", "/events", ""}, {"POST", "/start", ""},
		{"POST", "/complete", ""}, {"POST", "/cancel", ""}, {"POST", "/fail", `{"error":"x"}`}, {"POST", "/events", events}} {
		a.want(404, c[0], unknown+c[1], c[2])
		if r := a.want(400, c[0], "/v1/runs/not-a-uuid"+c[1], c[2]); r.field("errors.0.location") != "path.id" {
			t.Errorf("a malformed id: %s", r.body)
		}
	}
}

func TestGatewayIsIdempotent(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const body = `{"appPackage":"com.example","deviceConfig":{"a":1,"b":2}}`
	var group sync.WaitGroup
	ids := make(chan string, 20)
	fresh := make(chan bool, 20)
	for range 20 {
		group.Go(func() {
			r := a.want(201, "POST", "/v1/runs", body, "Idempotency-Key", "key-1")
			ids <- r.field("runId")
			fresh <- r.header.Get("Idempotency-Replayed") == ""
		})
	}
	group.Wait()
	first, news := <-ids, 0
	for range 19 {
		if id := <-ids; id != first {
			t.Errorf("runs %s and %s have one key", first, id)
		}
	}
	for range 20 {
		if <-fresh {
			news++
		}
	}
	if news != 1 {
		t.Errorf("%d answers say that they made the run", news)
	}
	// The same content.
	a.want(201, "POST", "/v1/runs", `{ "deviceConfig":{"b":2,"a":1}, "appPackage":"com.example" }`, "Idempotency-Key",
		"key-1")
	if r := a.want(409, "POST", "/v1/runs", `{"appPackage":"com.other"}`, "Idempotency-Key",
		"key-1"); !strings.Contains(r.field("detail"), "Idempotency-Key") {
		t.Errorf("another body: %s", r.body)
	}
	if r := a.as(a.newToken("other", 0, "write")).want(201, "POST", "/v1/runs", body, "Idempotency-Key",
		"key-1"); r.field("runId") == first {
		t.Error("another tenant's key is the same")
	}
	if r := a.call("POST", "/v1/runs", body, "Idempotency-Key", " "); r.status != 400 ||
		r.field("errors.0.location") != "header.Idempotency-Key" {
		t.Errorf("an empty key: %d %s", r.status, r.body)
	}
	for _, key := range []string{strings.Repeat("k", 256), "two words", "schlüssel", "tab\there"} {
		if r := a.want(400, "POST", "/v1/runs", body, "Idempotency-Key",
			key); r.field("errors.0.location") != "header.Idempotency-Key" {
			t.Errorf("key %q: %s", key, r.body)
		}
	}
	a.want(201, "POST", "/v1/runs", body, "Idempotency-Key", strings.Repeat("k", 255))

	path, id, other := a.newRun(true), uuid.NewString(), uuid.NewString()
	one := fmt.Sprintf(`{"events":[{"id":"%s","type":"PROCESSING","payload":{"n":1}}]}`, id)
	for i := range 2 {
		r := a.want(201, "POST", path+"/events", one)
		if r.field("firstSeq") != "2" || r.field("lastSeq") != "2" ||
			r.header.Get("Idempotency-Replayed") != []string{"", "true"}[i] {
			t.Errorf("append %d: %s %v", i, r.body, r.header)
		}
	}
	a.want(409, "POST", path+"/events", strings.Replace(one, `"n":1`, `"n":2`, 1))
	r := a.want(201, "POST", path+"/events",
		fmt.Sprintf(`{"events":[{"id":"%s","type":"PROCESSING","payload":{"n":1}},{"id":"%s","type":"ERROR"}]}`, id, other))
	if r.field("firstSeq") != "2" || r.field("lastSeq") != "3" {
		t.Errorf("half of it new: %s", r.body)
	}
	a.want(200, "POST", path+"/complete", "")
	a.want(201, "POST", path+"/events", one) // the answer of the first time was lost
}

func TestGatewayListsRuns(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a := newAPI(t)
	var made []string
	for i := range 7 {
		made = append(made, a.want(201, "POST", "/v1/runs", fmt.Sprintf(`{"appPackage":"app%d"}`, i%2)).field("runId"))
	}
	slices.Reverse(made)
	a.want(200, "POST", "/v1/runs/"+made[0]+"/start", "")
	list := func(query string) (ids []string, next string) {
		t.Helper()
		var page struct {
			Items      []struct{ RunID string }
			NextCursor *string
		}
		r := a.want(200, "GET", "/v1/runs?"+query, "")
		if err := json.Unmarshal(r.body, &page); err != nil || page.Items == nil {
			t.Fatalf("%s: %v", r.body, err)
		}
		for _, item := range page.Items {
			ids = append(ids, item.RunID)
		}
		if page.NextCursor != nil {
			next = *page.NextCursor
		}
		return ids, next
	}
	var all []string
	pages := 0
	for next := "start"; next != ""; pages++ {
		var ids []string
		ids, next = list("limit=3&cursor=" + strings.TrimPrefix(next, "start"))
		all = append(all, ids...)
	}
	if !slices.Equal(all, made) || pages != 3 {
		t.Errorf("in %d pages %v, want %v", pages, all, made)
	}
	if ids, next := list("limit=7"); len(ids) != 7 || next != "" {
		t.Errorf("a full last page: %v %q", ids, next)
	}
	if ids, _ := list("status=RUNNING"); !slices.Equal(ids, made[:1]) {
		t.Errorf("RUNNING: %v", ids)
	}
	if ids, _ := list("status=PENDING&appPackage=app1&limit=500"); !slices.Equal(ids,
		[]string{made[1], made[3], made[5]}) {
		t.Errorf("PENDING of app1: %v of %v", ids, made)
	}
	if ids, _ := list("appPackage=nobody"); len(ids) != 0 {
		t.Errorf("nobody: %v", ids)
	}
	for query, location := range map[string]string{
		"limit=0": "query.limit", "limit=501": "query.limit", "limit=x": "query.limit", "status=DONE": "query.status",
		"cursor=x": "query.cursor", "cursor=AAAA": "query.cursor",
		"sort=asc": "query.sort", "appPackage=" + strings.Repeat("a", 256): "query.appPackage",
	} {
		if r := a.want(400, "GET", "/v1/runs?"+query, ""); r.field("errors.0.location") != location {
			t.Errorf("%s: %s", query, r.body)
		}
	}
	for _, query := range []string{"after=-1", "after=x", "after=9223372036854775808", "limit=0", "limit=1001"} {
		name, _, _ := strings.Cut(query, "=")
		if r := a.want(400, "GET", "/v1/runs/"+made[0]+"/events?"+query, ""); r.field("errors.0.location") != "query."+name {
			t.Errorf("%s: %s", query, r.body)
		}
	}
}

func TestGatewayTakesBodiesLiterally(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a := newAPI(t)
	running := a.newRun(true)
	event := func(e string) string { return `{"events":[{"type":"ERROR"},` + e + `]}` }
	for _, c := range []struct{ path, body, location, message string }{
		{"/v1/runs", ``, "", "body is required"},
		{"/v1/runs", `{`, "body", ""},
		{"/v1/runs", `[]`, "body", "want an object"},
		{"/v1/runs", `null`, "body.appPackage", "is required"},
		{"/v1/runs", `{"appPackage":"a"} {}`, "body", "at byte 19"},
		{"/v1/runs", `{"appPackage":"a","color":"red"}`, "body.color", "is no field"},
		{"/v1/runs", `{"apppackage":"a"}`, "body.apppackage", "is no field"},
		{"/v1/runs", `{"appPackage":"a","appPackage":"b"}`, "body.appPackage", "twice"},
		{"/v1/runs", `{"appPackage":"a","deviceConfig":{"x":1,"x":2}}`, "body.deviceConfig.x", "twice"},
		{"/v1/runs", "{\"appPackage\":\"a\xff\"}", "body.appPackage", "UTF-8"},
		{"/v1/runs", `{"appPackage":7}`, "body.appPackage", "want a string"},
		{"/v1/runs", `{"appPackage":""}`, "body.appPackage", "is required"},
		{"/v1/runs", `{"appPackage":"` + strings.Repeat("ü", 256) + `"}`, "body.appPackage", "255"},
		{"/v1/runs", `{"appPackage":"a\u0000"}`, "body.appPackage", "U+0000"},
		{"/v1/runs", `{"appPackage":"a","maxSteps":1.5}`, "body.maxSteps", ""},
		{"/v1/runs", `{"appPackage":"a","maxSteps":"7"}`, "body.maxSteps", "whole number"},
		{"/v1/runs", `{"appPackage":"a","maxSteps":0}`, "body.maxSteps", "between 1 and"},
		{"/v1/runs", `{"appPackage":"a","maxSteps":100001}`, "body.maxSteps", "between 1 and"},
		{"/v1/runs", `{"appPackage":"a","deviceConfig":[]}`, "body.deviceConfig", "object"},
		{"/v1/runs", `{"appPackage":"a","deviceConfig":{"x":"\u0000"}}`, "body.deviceConfig.x", "U+0000"},
		{"/v1/runs", `{"appPackage":"a","deviceConfig":{"x":"` + strings.Repeat("x", 16<<10) + `"}}`, "body.deviceConfig",
			"limit is 16384"},
		{"/v1/runs", `{"appPackage":"a","crawler":"robot"}`, "body.crawler", "external, demo"},
		{running + "/fail", `{}`, "body.error", "is required"},
		{running + "/fail", `{"reason":"x"}`, "body.reason", "is no field"},
		{running + "/complete", `{"error":"x"}`, "body.error", "is no field"},
		{running + "/events", `{}`, "body.events", "between 1 and 500"},
		{running + "/events", `{"events":{}}`, "body.events", "want an array"},
		{running + "/events", `{"events":[]}`, "body.events", "between 1 and 500"},
		{running + "/events", `{"events":[` + strings.Repeat(`{"type":"ERROR"},`, 500) + `{"type":"ERROR"}]}`, "body.events",
			"between 1 and 500"},
		{running + "/events", event(`{"type":"PROCESSING","extra":1}`), "body.events[1].extra", "is no field"},
		{running + "/events", event(`{"type":"PROCESSING","payload":{"a":{"b":1,"b":2}}}`), "body.events[1].payload.a.b",
			"twice"},
		{running + "/events", event(`{"type":"lower"}`), "body.events[1].type", "A-Z"},
		{running + "/events", event(`{"payload":{}}`), "body.events[1].type", "is required"},
		{running + "/events", event(`{"type":"RUN_COMPLETED"}`), "body.events[1].type", "complete the run"},
		{running + "/events", event(`{"type":"ERROR","id":"7"}`), "body.events[1].id", "UUID"},
		{running + "/events", event(`{"type":"ERROR","id":7}`), "body.events[1].id", "want a UUID"},
		{running + "/events", event(`{"type":"ERROR","id":"00000000-0000-0000-0000-000000000000"}`), "body.events[1].id",
			"nil UUID"},
		{running + "/events", event(`{"type":"ERROR","payload":"\ud800"}`), "body.events[1].payload", ""},
	} {
		r := a.want(400, "POST", c.path, c.body)
		if r.field("errors.0.location") != c.location ||
			!strings.Contains(r.field("detail")+r.field("errors.0.message"), c.message) || len(r.body) > 1000 {
			t.Errorf("%s %.100s: %.1000s", c.path, c.body, r.body)
		}
	}
	// All problems at once.
	if r := a.want(400, "POST", "/v1/runs",
		`{"maxSteps":-1,"crawler":"x","deviceConfig":[]}`); r.field("errors.3.location") == "" {
		t.Errorf("four problems: %s", r.body)
	}
	if r := a.want(400, "POST", running+"/events",
		`{"events":[`+strings.Repeat(`{"type":"x"},`, 99)+`{}]}`); r.field("errors.19.location") == "" ||
		r.field("errors.20.location") != "" || !strings.HasSuffix(r.field("detail"), "; and 80 more") {
		t.Errorf("a hundred problems: %s", r.body)
	}
	// null is "not given".
	a.want(201, "POST", "/v1/runs", `{"appPackage":"a","deviceConfig":null,"maxSteps":null,"goal":null,"crawler":null}`)

	for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "application/xml", ";"} {
		a.want(415, "POST", "/v1/runs", `{"appPackage":"a"}`, "Content-Type", contentType)
	}
	a.want(201, "POST", "/v1/runs", `{"appPackage":"a"}`, "Content-Type", "application/json; charset=utf-8")

	// The limits: 64 KiB, and 4 MiB for events.
	if r := a.want(413, "POST", "/v1/runs",
		`{"appPackage":"a","goal":"`+strings.Repeat("x", 64<<10)+`"}`); !strings.Contains(r.field("detail"), "65536") {
		t.Errorf("got %s", r.body)
	}
	pad := func(n int) string {
		head, tail := `{"events":[{"type":"ERROR","payload":{"a":"`, `"}}]}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	if r := a.want(413, "POST", running+"/events", pad(4<<20+1)); !strings.Contains(r.field("detail"), "4194304") {
		t.Errorf("got %s", r.body)
	}
	a.want(400, "POST", running+"/events", pad(4<<20)) // the body passes, the payload is over its own limit
	if n := query[int](t, a, "SELECT count(*) FROM crawl_events WHERE event_type <> 'RUN_STARTED'"); n != 0 {
		t.Errorf("%d events were appended", n)
	}
}

func query[T any](t *testing.T, a *webAPI, sql string, args ...any) (v T) {
	t.Helper()
	if err := a.pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestGatewayAnswersEveryPathAlike(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a := newAPI(t, func(c *gateway.Config) { c.PublicURL = "https://api.example.com/" })
	a.want(404, "GET", "/", "")
	a.want(404, "GET", "/v1/run", "")
	a.want(404, "POST", "/v1/runs/x/y/z", "")
	for method, paths := range map[string][]string{"DELETE": {"/v1/runs", "/v1/runs/" + uuid.NewString()},
		"PUT": {"/v1/runs"}, "GET": {"/v1/runs/" + uuid.NewString() + "/cancel"}} {
		for _, path := range paths {
			if r := a.want(405, method, path, ""); r.header.Get("Allow") == "" {
				t.Errorf("%s %s: %v", method, path, r.header)
			}
		}
	}
	made := a.want(201, "POST", "/v1/runs", `{"appPackage":"a"}`)
	if link := made.header.Get("Location"); !strings.HasPrefix(link, "https://api.example.com/v1/runs/") ||
		made.field("streamUrl") != link+"/stream" {
		t.Errorf("%s %s", link, made.body)
	}
	if u := must(url.Parse(made.header.Get("Location")))(t); a.want(200, "GET", u.Path,
		"").field("streamUrl") != made.field("streamUrl") {
		t.Error("the run has another streamUrl")
	}
	if r := a.want(200, "GET", "/v1/runs", "", "X-Request-Id", "mine-1"); r.header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("got %v", r.header)
	}
	for _, bad := range []string{"a b", strings.Repeat("x", 129), "é"} {
		if r := a.want(200, "GET", "/v1/runs", "", "X-Request-Id",
			bad); !regexp.MustCompile(`^[0-9a-f-]{36}$`).MatchString(r.header.Get("X-Request-Id")) {
			t.Errorf("%q: %v", bad, r.header)
		}
	}
	if r := a.want(200, "HEAD", "/v1/runs", ""); len(r.body) != 0 {
		t.Errorf("HEAD: %s", r.body)
	}
}
