package integration

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/token"
)

// operations are those of the API with the scope that each needs. %s is a run.
var operations = []struct{ method, path, body, scope string }{
	{"GET", "/v1/runs", "", "read"},
	{"GET", "/v1/runs/%s", "", "read"},
	{"GET", "/v1/runs/%s/events", "", "read"},
	{"POST", "/v1/stream-tickets", "", "read"},
	{"POST", "/v1/runs", `{"appPackage":"a"}`, "write"},
	{"POST", "/v1/runs/%s/start", "", "write"},
	{"POST", "/v1/runs/%s/events", `{"events":[{"type":"ERROR"}]}`, "write"},
	{"POST", "/v1/runs/%s/fail", `{"error":"x"}`, "write"},
	{"POST", "/v1/runs/%s/complete", "", "write"},
	{"POST", "/v1/runs/%s/cancel", "", "operate"},
}

func TestGatewayAsksForTokenAndScope(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	expired, revoked := a.newToken("shop", time.Hour, token.Scopes...), a.newToken("shop", 0, token.Scopes...)
	id, _, err := token.Parse(expired)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.pool.Exec(t.Context(), "UPDATE outbox_tokens SET expires_at = now() WHERE id = $1", id); err != nil {
		t.Fatal(err)
	}
	if id, _, err = token.Parse(revoked); err != nil {
		t.Fatal(err)
	}
	a.as(revoked).want(200, "GET", "/v1/runs", "")
	must(a.tokens.RevokeToken(t.Context(), "test", id))(t)
	ticket := a.want(201, "POST", "/v1/stream-tickets", "").field("ticket")

	for _, op := range operations {
		path := strings.Replace(op.path, "%s", a.want(201, "POST", "/v1/runs", `{"appPackage":"a"}`).field("runId"), 1)
		for name, authorization := range map[string]string{
			"none": "", "no scheme": a.token, "basic": "Basic " + a.token, "malformed": "Bearer x",
			"two":            "Bearer " + a.token + " " + a.token,
			"another secret": "Bearer " + a.token[:len(a.token)-4] + "abcd", "expired": "Bearer " + expired,
			"revoked": "Bearer " + revoked, "a ticket": "Bearer " + ticket,
		} {
			r := a.want(401, op.method, path, op.body, "Authorization", authorization)
			if challenge := r.header.Get("WWW-Authenticate"); !strings.HasPrefix(challenge, `Bearer realm="outbox"`) {
				t.Errorf("%s: %q", name, challenge)
			}
		}
		for _, scope := range token.Scopes {
			with := a.as(a.newToken("shop", 0, scope))
			if string(scope) != op.scope {
				r := with.want(403, op.method, path, op.body)
				if !strings.Contains(r.field("detail"), "scope "+op.scope) ||
					!strings.Contains(r.header.Get("WWW-Authenticate"), `error="insufficient_scope", scope="`+op.scope+`"`) {
					t.Errorf("%s %s with %s: %s %v", op.method, path, scope, r.body, r.header)
				}
			} else if r := with.call(op.method, path, op.body); r.status == 401 || r.status == 403 {
				t.Errorf("%s %s with %s: %d %s", op.method, path, scope, r.status, r.body)
			}
		}
	}
	a.want(200, "GET", "/v1/runs", "", "Authorization", "bearer "+a.token) // the scheme in any case (RFC 9110)
	a.want(400, "GET", "/v1/runs?ticket="+ticket, "")                      // tickets are for streams
	a.want(401, "GET", "/v1/runs?ticket="+ticket, "", "Authorization", "") // and for nothing else
	a.as("").want(200, "GET", "/openapi.json", "")                         // the description is everybody's
	a.as("").want(404, "GET", "/v1/nothing", "")
}

// To another tenant a run does not exist.
func TestGatewayKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := strings.TrimPrefix(a.newRun(true), "/v1/runs/")
	other := a.as(a.newToken("other", 0, token.Scopes...))
	for _, op := range operations {
		if !strings.Contains(op.path, "%s") {
			continue
		}
		mine := other.want(404, op.method, strings.Replace(op.path, "%s", run, 1), op.body)
		unknown := other.want(404, op.method, strings.Replace(op.path, "%s", uuid.NewString(), 1), op.body)
		if string(mine.body) != string(unknown.body) {
			t.Errorf("%s %s: one can tell that the run is there: %s", op.method, op.path, mine.body)
		}
	}
	if r := other.want(200, "GET", "/v1/runs", ""); r.field("items.0.runId") != "" {
		t.Errorf("got %s", r.body)
	}
	if r := a.want(200, "GET", "/v1/runs/"+run, ""); r.field("lastSeq") != "1" || r.field("status") != "RUNNING" {
		t.Errorf("the run was changed: %s", r.body)
	}
}

func TestGatewayTickets(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	// The stream of a run that has ended, asked for from its end, is 204 at once.
	hub := func(c *gateway.Config) { c.Hub = stream.New(nil, nil, stream.Config{}) }
	a := newAPI(t, hub)
	path := a.newRun(false)
	a.want(200, "POST", path+"/cancel", "")
	path += "/stream?lastEventId=1"
	ticket := func() string {
		t.Helper()
		r := a.want(201, "POST", "/v1/stream-tickets", "{}")
		expires := must(time.Parse(time.RFC3339Nano, r.field("expiresAt")))(t)
		if left := time.Until(expires); left < 20*time.Second || left > 40*time.Second {
			t.Errorf("the ticket is good for %s", left)
		}
		return r.field("ticket")
	}
	browser := a.as("")
	browser.want(401, "GET", path, "")
	a.want(204, "GET", path, "")
	first := ticket()
	browser.want(204, "GET", path+"&ticket="+first, "")
	browser.want(401, "GET", path+"&ticket="+first, "")
	browser.want(401, "GET", path+"&ticket=", "")
	browser.want(401, "GET", path+"&ticket=obt_x", "")
	browser.want(401, "GET", path+"&ticket="+a.token, "") // a token in a URL is none
	late := ticket()
	if _, err := a.pool.Exec(t.Context(), "UPDATE outbox_tickets SET expires_at = now()"); err != nil {
		t.Fatal(err)
	}
	browser.want(401, "GET", path+"&ticket="+late, "")
	unused := ticket()
	a.want(204, "GET", path+"&ticket="+unused, "") // the header is enough
	browser.want(204, "GET", path+"&ticket="+unused, "")

	other := a.as(a.newToken("other", 0, token.Read)).want(201, "POST", "/v1/stream-tickets", "").field("ticket")
	browser.want(404, "GET", path+"&ticket="+other, "")

	for name, secret := range map[string]string{"token": a.token, "ticket": first, "unused ticket": unused,
		"late ticket": late} {
		if strings.Contains(a.log.String(), secret[20:]) {
			t.Errorf("the %s is in the log", name)
		}
	}
	if !strings.Contains(a.log.String(), "ticket=REDACTED") || !strings.Contains(a.log.String(), "lastEventId=1") {
		t.Error("the log has no queries")
	}
}

func TestGatewayWithoutAuthentication(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a := newAPI(t, func(c *gateway.Config) {
		c.Auth, c.AllowedOrigins = nil, []string{"https://app.example.com", "http://localhost:*"}
	}).as("")
	path := a.newRun(true)
	if r := a.want(200, "GET", path, ""); r.field("tenant") != "default" {
		t.Errorf("got %s", r.body)
	}
	if text := a.want(201, "POST", "/v1/stream-tickets",
		"").field("ticket"); !regexp.MustCompile(`^obt_[a-z2-7]{52}$`).MatchString(text) {
		t.Errorf("ticket %q", text)
	}
	// A page of another site may send a POST without asking first, and would need no token.
	a.want(403, "POST", path+"/cancel", "", "Origin", "https://evil.example.com")
	a.want(403, "POST", path+"/cancel", "", "Sec-Fetch-Site", "cross-site")
	if r := a.want(200, "GET", path, ""); r.field("status") != "RUNNING" {
		t.Errorf("got %s", r.body)
	}
	a.want(403, "POST", path+"/cancel", "", "Origin", "http://localhost.evil.example:80", "Sec-Fetch-Site", "cross-site")
	for _, origin := range []string{"https://app.example.com", "http://localhost:5173"} {
		a.want(200, "POST", path+"/cancel", "", "Origin", origin, "Sec-Fetch-Site", "cross-site")
	}
}

func TestGatewayCORS(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a := newAPI(t, func(c *gateway.Config) {
		c.AllowedOrigins = []string{"https://app.example.com", "http://localhost:*"}
	})
	preflight := func(origin, headers string) http.Header {
		t.Helper()
		return a.as("").want(204, "OPTIONS", "/v1/runs", "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", headers).header
	}
	for _, origin := range []string{"https://app.example.com", "http://localhost:5173", "http://localhost"} {
		h := preflight(origin, "authorization,content-type,idempotency-key,last-event-id")
		if h.Get("Access-Control-Allow-Origin") != origin ||
			!strings.Contains(h.Get("Access-Control-Allow-Headers"), "idempotency-key") ||
			h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", origin, h)
		}
		r := a.want(401, "GET", "/v1/runs", "", "Origin", origin, "Authorization", "") // a page reads why it is refused
		if r.header.Get("Access-Control-Allow-Origin") != origin ||
			!strings.Contains(strings.Join(r.header.Values("Vary"), ","), "Origin") ||
			!strings.Contains(r.header.Get("Access-Control-Expose-Headers"), "Location") {
			t.Errorf("%s: %v", origin, r.header)
		}
	}
	for _, origin := range []string{"https://app.example.com.evil.com", "http://app.example.com", "null",
		"https://APP.example.com:8443", "https://localhost:1", "http://localhost.evil.com:80", "http://localhost:",
		"http://localhost:80.evil.com"} {
		if h := preflight(origin, "authorization"); h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", origin, h)
		}
		if h := a.want(200, "GET", "/v1/runs", "", "Origin", origin).header; h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", origin, h)
		}
	}
	if h := preflight("https://app.example.com", "x-other"); h.Get("Access-Control-Allow-Headers") != "" {
		t.Errorf("another header is allowed: %v", h)
	}
	closed := newAPI(t)
	if h := closed.want(200, "GET", "/v1/runs", "", "Origin",
		"https://app.example.com").header; h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("no origin is allowed: %v", h)
	}
}

// A database that is down is a 503 that says when to come back, and nothing about the database.
func TestGatewayWhenTheDatabaseIsDown(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := testenv.PostgresServer(t, testenv.PostgresConfig{})
	if _, err := openPool(t, server.URL("postgres")).Exec(t.Context(), "CREATE DATABASE outbox"); err != nil {
		t.Fatal(err)
	}
	a := newAPIIn(t, server.URL("outbox"))
	path := a.newRun(true)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for a.call("GET", path, "").status == 200 { // a server process may outlive its postmaster for a moment
		time.Sleep(10 * time.Millisecond)
	}
	for _, op := range operations {
		r := a.want(503, op.method, strings.Replace(op.path, "/v1/runs/%s", path, 1), op.body)
		if r.header.Get("Retry-After") != "1" || strings.Contains(string(r.body), "SQL") ||
			strings.Contains(string(r.body), server.Dir()) {
			t.Errorf("%s %v", r.body, r.header)
		}
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	a.want(200, "GET", path, "")
	if strings.Contains(a.log.String(), "level=ERROR") ||
		!strings.Contains(a.log.String(), "the database does not answer") {
		t.Error("the log does not say what it was")
	}
}

// Nothing takes longer than Config.Timeout: a lock that is held, a client that does not send what
// it has announced.
func TestGatewayIsNotKeptWaiting(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a := newAPI(t, func(c *gateway.Config) { c.Timeout = 3 * time.Second }) // enough for a machine that is busy
	path := a.newRun(true)
	tx := must(a.pool.Begin(t.Context()))(t)
	if _, err := tx.Exec(t.Context(), "SELECT FROM crawl_runs FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	a.want(503, "POST", path+"/cancel", "")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.want(200, "POST", path+"/cancel", "")

	conn := must(net.Dial("tcp", strings.TrimPrefix(a.url, "http://")))(t)
	defer conn.Close()
	if _, err := fmt.Fprintf(conn,
		"POST /v1/runs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: "+
			"application/json\r\nContent-Length: 100\r\n\r\n{", a.token); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(tier.Patience())); err != nil {
		t.Fatal(err)
	}
	line := must(bufio.NewReader(conn).ReadString('\n'))(t)
	if !strings.Contains(line, "408") {
		t.Errorf("a client that stops sending is answered with %s", line)
	}
}

// A table that is missing is our fault: 500, its text in the log and not in the answer.
func TestGatewayKeepsInternalsToItself(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	a := newAPI(t)
	path := a.newRun(false)
	if _, err := a.pool.Exec(t.Context(), "ALTER TABLE crawl_events RENAME TO gone"); err != nil {
		t.Fatal(err)
	}
	r := a.want(500, "GET", path+"/events", "", "X-Request-Id", "find-me")
	if strings.Contains(string(r.body), "crawl_events") ||
		!strings.Contains(a.log.String(), `relation \"crawl_events\" does not exist`) ||
		!strings.Contains(a.log.String(), "request_id=find-me") {
		t.Errorf("got %s", r.body)
	}
}

func TestGatewayConfiguration(t *testing.T) {
	t.Parallel()
	_, err := gateway.New(gateway.Config{Auth: &token.Authenticator{},
		AllowedOrigins: []string{"*", "example.com", "https://a.com/", "https://*.a.com", "https://a.com"},
		PublicURL:      "https://user:hunter2@a.com"})
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{"Runs is required", "AllowedOrigins: *", `"example.com"`, `"https://a.com/"`,
		`"https://*.a.com"`, "PublicURL"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s is missing in: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), `"https://a.com"`) || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
