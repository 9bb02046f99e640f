package chaos

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// party is one of two tenants: what belongs to it, and may be seen and changed with its tokens
// only.
type party struct {
	tokens []string
	mark   string // in all that its runs hold
	own    string // a run that its tokens are tried on
	victim string // a run that only the other's tokens are tried on
}

// How many requests are made: by `make chaos`, and in `make test`.
const (
	hostileCount = 1600
	hostileFew   = 150
)

// internals are what an answer must not show of database and program.
var internals = regexp.MustCompile(`(?i)sqlstate|pgx|postgres[:/.]|sqlite[:/.]|crawl_runs|crawl_events|outbox_tokens|relation "|syntax error at|constraint|goroutine|runtime error|\.go:\d|dial tcp|/tmp/`)

// hostileRequests sends whatever a program can think of, over all routes, with tokens of two
// tenants and with none.
func hostileRequests(s *served) (struck int, about string) {
	var parties [2]party
	for i, tenant := range []string{"acme", "beta"} {
		p := &parties[i]
		p.mark = "mark" + strings.ReplaceAll(uuid.NewString(), "-", "")
		for _, scope := range []string{"read,write,operate", "read", "write", "operate"} {
			_, text := s.token(tenant, scope)
			p.tokens = append(p.tokens, text)
		}
		body := fmt.Sprintf(`{"appPackage":"%[1]s","goal":"%[1]s","deviceConfig":{"a":"%[1]s"}}`, p.mark)
		for _, run := range []*string{&p.own, &p.victim} {
			*run = s.run(p.tokens[0], body)
			s.expect(201, p.tokens[0], "POST", "/v1/runs/"+*run+"/events",
				fmt.Sprintf(`{"events":[{"type":"A","payload":{"a":"%s"}}]}`, p.mark))
		}
	}
	look := func() (state string) {
		for _, p := range parties {
			state += s.expect(200, p.tokens[0], "GET", "/v1/runs/"+p.victim, "") + s.expect(200, p.tokens[0], "GET",
				"/v1/runs/"+p.victim+"/events", "")
		}
		return state
	}
	before := look()
	fmt.Printf("hostile requests of seed %d\n", *seed)
	requests := make(chan request)
	var senders sync.WaitGroup
	statuses := map[int]int{}
	var mu sync.Mutex
	for range 4 {
		senders.Go(func() {
			for r := range requests {
				status, answer := s.exchange(r.text)
				if status >= 500 && status != 501 && status != 505 || internals.MatchString(answer) {
					s.t.Errorf("%.600q: %d %.600s", r.text, status, answer)
				}
				for i, p := range parties {
					if i != r.party && strings.Contains(answer, p.mark) {
						s.t.Errorf("%.600q shows what is another tenant's: %d %.600s", r.text, status, answer)
					}
				}
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	made := hostileFew
	if tier.AllSelected() {
		made = hostileCount
	}
	for range made {
		requests <- hostile(s.rng, parties)
	}
	close(requests)
	senders.Wait()
	if after := look(); after != before {
		s.t.Errorf("a run was changed with another tenant's tokens:\n%s\n%s", before, after)
	}
	for _, wrong := range []string{`"a request panicked"`, `"level":"ERROR"`} {
		if n := strings.Count(s.process.said(), wrong); n > 0 {
			s.t.Errorf("the log has %d lines with %s", n, wrong)
		}
	}
	kinds := 0
	for _, status := range []int{200, 201, 400, 401, 403, 404, 405, 409, 415} {
		if statuses[status] > 0 {
			kinds++
		}
	}
	if made == hostileCount && kinds < 8 || kinds < 6 {
		s.t.Errorf("the answers are %v: the requests do not get far", statuses)
	}
	return made, fmt.Sprintf("answers %v", statuses)
}

// request is bytes, and whose token is in them: 0 or 1, -1 for nobody's.
type request struct {
	text  string
	party int
}

// hostile makes one request. Of ten about four are wrong in one thing only, so that the rest of the
// way is tried too.
func hostile(rng *rand.Rand, parties [2]party) request {
	r := request{party: rng.IntN(3) - 1}
	auth, me, other := "", parties[0], parties[1]
	if r.party == 1 {
		me, other = other, me
	}
	if r.party >= 0 {
		auth = "Authorization: Bearer " + me.tokens[rng.IntN(2)*rng.IntN(len(me.tokens))] + "\r\n"
	} else {
		auth = pick(rng, noTokens...)
	}
	ids := append([]string{me.own, me.own, me.own, other.victim, other.victim, strings.ToUpper(other.victim),
		"urn:uuid:" + other.victim, "{" + other.victim + "}",
		strings.ReplaceAll(other.victim, "-", ""), other.victim + "%00", me.own + "/../" + other.victim, uuid.NewString()},
		oddIDs...)
	if r.party < 0 {
		ids = append(ids, parties[0].victim, parties[1].victim)
	}
	route := pick(rng, paths...)
	path := strings.ReplaceAll(route, "{id}", pick(rng, ids...))
	if rng.IntN(2) == 0 && !changes.MatchString(route) || rng.IntN(10) == 0 {
		mark := "?"
		if strings.Contains(path, "?") {
			mark = "&"
		}
		path += mark + strings.ReplaceAll(pick(rng, queries...), "{id}", pick(rng, other.victim, me.own))
	}
	method := "GET"
	if changes.MatchString(route) || (route == "/v1/runs" || strings.HasSuffix(route, "/events")) && rng.IntN(2) == 0 {
		method = "POST"
	}
	if rng.IntN(10) == 0 {
		method = pick(rng, "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "get", "X", "GET\tPOST")
	}
	body := ""
	if method == "POST" || rng.IntN(10) == 0 {
		body = pick(rng, bodies...)
		if good, ok := goodBodies[route]; ok && rng.IntN(2) == 0 {
			body = good
		}
		body = strings.ReplaceAll(body, "{id}", pick(rng, other.victim, me.own, uuid.NewString()))
	}
	head := auth + "Connection: close\r\n"
	if body != "" {
		head += pick(rng, contentTypes...)
		if rng.IntN(12) == 0 {
			head += "Transfer-Encoding: chunked\r\n"
			body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		} else {
			head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
		}
	}
	if rng.IntN(3) == 0 {
		head += strings.ReplaceAll(pick(rng, headers...), "{id}", other.victim)
	}
	r.text = method + " " + path + " HTTP/1.1\r\nHost: " +
		pick(rng, "localhost", "localhost", "127.0.0.1", "evil.example", "a b", "") + "\r\n" + head + "\r\n" + body
	return r
}

func pick(rng *rand.Rand, of ...string) string { return of[rng.IntN(len(of))] }

// changes are the routes that are for POST alone.
var changes = regexp.MustCompile(`/(start|complete|cancel|fail|stream-tickets)$`)

var (
	goodBodies = map[string]string{
		"/v1/runs": `{"appPackage":"a"}`, "/v1/runs/{id}/events": `{"events":[{"type":"A","payload":{"a":1}}]}`,
		"/v1/runs/{id}/fail": `{"error":"x"}`, "/v1/runs/{id}/start": "{}",
		"/v1/runs/{id}/complete": "{}", "/v1/runs/{id}/cancel": "{}", "/v1/stream-tickets": "{}",
	}
	noTokens = []string{
		"", "Authorization: Bearer \r\n", "Authorization: Bearer obx_aaaaaaaaaaaa_" + strings.Repeat("a", 52) + "\r\n",
		"Authorization: Basic YTpi\r\n", "Authorization: Bearer " + strings.Repeat("x", 5000) + "\r\n",
		"Authorization: Bearer obx_' OR 1=1--\r\n", "Authorization: Bearer \xff\xfe\r\n",
		"Authorization: bearer obt_" + strings.Repeat("a", 52) + "\r\n",
	}
	paths = []string{
		"/v1/runs", "/v1/runs", "/v1/runs/{id}", "/v1/runs/{id}", "/v1/runs/{id}/events", "/v1/runs/{id}/events",
		"/v1/runs/{id}/start", "/v1/runs/{id}/complete", "/v1/runs/{id}/cancel",
		"/v1/runs/{id}/fail", "/v1/runs/{id}/stream", "/v1/stream?topics=run:{id}", "/v1/stream?topics=a,run:{id}",
		"/v1/stream?topics={id}", "/v1/stream", "/v1/stream-tickets", "/openapi.json",
		"/openapi.yaml", "/", "//v1/runs/{id}", "/v1/../v1/runs/{id}", "/v1/runs/{id}/", "/V1/runs/{id}", "/v1/runs//{id}",
		"/v1/runs/{id}%2fevents", "http://evil.example/v1/runs/{id}", "*",
	}
	oddIDs = []string{
		"", "0", "-1", "null", "..", "%2e%2e", "'%20OR%201=1--", "%00", "%ff%fe", "00000000-0000-0000-0000-000000000000",
		"ffffffff-ffff-ffff-ffff-ffffffffffff", "{id}", "$1", strings.Repeat("a", 4000), "%F0%9F%92%A9",
	}
	queries = []string{
		"limit=1", "limit=500", "limit=0", "limit=-1", "limit=99999999999999999999", "limit=1e3", "limit=%00",
		"limit=1&limit=2", "cursor=AQ", "cursor=" + strings.Repeat("A", 34), "cursor=AX________________________________",
		"cursor=%ff", "cursor=" + strings.Repeat("A", 99), "status=PENDING", "status=pending", "status='%20OR%20'1'='1",
		"appPackage=%00", "appPackage=%ff", "appPackage=" + strings.Repeat("a", 300), "appPackage=%25",
		"after=0", "after=-1", "after=9223372036854775807", "after=9223372036854775808", "after=1.5", "tenant=beta",
		"tenantId=acme", "lastEventId=1", "lastEventId=99999", "lastEventId=0.0", "lastEventId=-1", "fromSeq=0",
		"fromSeq=1", "envelope=payload", "envelope=x", "topics=run:{id}", "topics=" + strings.Repeat("a,", 60) + "a",
		"topics=a%00b", "topics=" + strings.Repeat("a", 200), "ticket=", "ticket=obt_" + strings.Repeat("a", 52),
		"ticket=%00", "access_token=x", ";", "a=b;c=d", "%zz", "a%00=b", "sort=created_at;drop", "$where=1", "x[]=1",
	}
	bodies = []string{
		"", "{}", "null", "[]", "0", `"x"`, "{", `{"a":`, "\x00", "\xff\xfe", "\xef\xbb\xbf{}", `{"appPackage":"a"}`,
		`{"appPackage":"a","tenant":"beta"}`, `{"appPackage":"a","tenantId":"acme","runId":"{id}"}`,
		`{"appPackage":""}`, `{"appPackage":"\u0000"}`, `{"appPackage":"\ud800"}`, "{\"appPackage\":\"\xff\"}",
		`{"appPackage":"a","appPackage":"b"}`, `{"AppPackage":"a"}`, `{"appPackage":1}`,
		`{"appPackage":"a","maxSteps":0}`, `{"appPackage":"a","maxSteps":-1}`, `{"appPackage":"a","maxSteps":1e99}`,
		`{"appPackage":"a","crawler":"'; DROP TABLE x;--"}`, `{"appPackage":"a","crawler":"script:../../x"}`,
		`{"appPackage":"a","deviceConfig":[]}`, `{"appPackage":"a","deviceConfig":{"a":1e131072}}`,
		`{"appPackage":"a","deviceConfig":` + strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000) + "}",
		`{"appPackage":"` + strings.Repeat("a", 256) + `"}`,
		`{"appPackage":"a","goal":"` + strings.Repeat("g", 70_000) + `"}`, `{"error":"x"}`, `{"error":""}`,
		`{"error":"\u0000"}`, `{"events":[]}`, `{"events":null}`,
		`{"events":[{"type":"A"}]}`, `{"events":[{"type":"RUN_COMPLETED"}]}`, `{"events":[{"type":"a"}]}`,
		`{"events":[{"type":"A","id":"{id}"}]}`, `{"events":[{"type":"A","id":"00000000-0000-0000-0000-000000000000"}]}`,
		`{"events":[{"type":"A","payload":{"a":"\u0000"}}]}`, `{"events":[{"type":"A","payload":1e999999}]}`,
		`{"events":[` + strings.Repeat(`{"type":"A"},`, 600) + `{"type":"A"}]}`,
		`{"events":[{"type":"A","seq":1,"crawlId":"{id}"}]}`, `{"events":[{"type":"A\r\nB"}]}`, "{}{}", "{} x",
		strings.Repeat("[", 20_000),
	}
	contentTypes = []string{
		"Content-Type: application/json\r\n", "Content-Type: application/json\r\n", "Content-Type: application/json\r\n",
		"Content-Type: application/json; charset=utf-8\r\n", "Content-Type: text/plain\r\n",
		"Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: application/cbor\r\n", "Content-Type: \xff\r\n",
		"", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
	}
	headers = []string{
		"Idempotency-Key: k\r\n", "Idempotency-Key: \r\n", "Idempotency-Key: k\r\nIdempotency-Key: l\r\n",
		"Idempotency-Key: \xff\r\n", "Idempotency-Key: " + strings.Repeat("k", 300) + "\r\n",
		"Last-Event-ID: 1\r\n", "Last-Event-ID: 99999999999999999999\r\n", "Last-Event-ID: 1.1.1\r\n",
		"Last-Event-ID: \r\nLast-Event-ID: 2\r\n", "X-Request-Id: {id}\r\n", "X-Request-Id: a\tb\r\n",
		"X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Host: evil.example\r\n", "X-HTTP-Method-Override: DELETE\r\n",
		"X-Tenant: beta\r\n", "Tenant: acme\r\n", "Origin: http://evil.example\r\n", "Origin: null\r\n",
		"Accept: application/cbor\r\n", "Accept: text/event-stream\r\n", "Accept-Encoding: br\r\n", "Range: bytes=0-\r\n",
		"Expect: 100-continue\r\n", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", "Prefer: x\r\n",
		"Cookie: a=b\r\n", "Content-Length: -1\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n",
		"Transfer-Encoding: gzip\r\n", " folded: x\r\n", "A: " + strings.Repeat("a", 70_000) + "\r\n", "If-None-Match: *\r\n",
	}
)
