package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/server/token"
)

// webAPI is a gateway over a database, and what it has logged.
type webAPI struct {
	t      *testing.T
	url    string
	pool   *pgxpool.Pool
	tokens *pgstore.Tokens
	auth   *token.Authenticator
	log    *lockedBuffer
	token  string // sent with each request, unless a header says otherwise
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newAPI serves the API with authentication, as a token of tenant shop with all scopes. It uses the
// database as the gateway's role.
func newAPI(t *testing.T, change ...func(*gateway.Config)) *webAPI {
	t.Helper()
	return newAPIIn(t, migrated(t), change...)
}

func newAPIIn(t *testing.T, database string, change ...func(*gateway.Config)) *webAPI {
	t.Helper()
	if err := pgmigrations.Up(t.Context(), database, pgmigrations.Sets...); err != nil {
		t.Fatal(err)
	}
	if err := pgtest.ApplyRoles(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	a := &webAPI{t: t, log: &lockedBuffer{}}
	a.pool = openPool(t, database)
	separator := "?"
	if strings.Contains(database, "?") {
		separator = "&"
	}
	gatewayPool := openPool(t, database+separator+"role=outbox_gateway")
	runs := must(pgstore.OpenRuns(t.Context(), gatewayPool))(t)
	a.tokens = must(pgstore.OpenTokens(t.Context(), a.pool))(t)
	a.auth = &token.Authenticator{Store: must(pgstore.OpenTokens(t.Context(), gatewayPool))(t)}
	cfg := gateway.Config{
		Runs: crawl.NewService(runs, crawl.ServiceConfig{Crawlers: []string{"demo"}}), Auth: a.auth,
		Logger: slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&cfg)
	}
	g := must(gateway.New(cfg))(t)
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the gateway said:\n%s", a.log)
		}
	})
	a.url = server.URL
	a.token = a.newToken("shop", 0, token.Scopes...)
	return a
}

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool := must(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(pool.Close)
	return pool
}

// must returns v, which the test cannot do without.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (a *webAPI) newToken(tenant string, ttl time.Duration, scopes ...token.Scope) string {
	a.t.Helper()
	made, text, sum, err := token.New(tenant, "", scopes)
	if err != nil {
		a.t.Fatal(err)
	}
	must(a.tokens.CreateToken(a.t.Context(), "test", made, sum, ttl))(a.t)
	return text
}

// as returns the API as another user sees it.
func (a *webAPI) as(text string) *webAPI {
	other := *a
	other.token = text
	return &other
}

// answer is what the API said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// field returns a field of the answer, "" if it has none. Dots lead into objects and lists:
// items.0.seq.
func (r answer) field(path string) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "no JSON: " + string(r.body)
	}
	for part := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[part]
		case []any:
			var i int
			if _, err := fmt.Sscan(part, &i); err != nil || i >= len(at) {
				return ""
			}
			v = at[i]
		default:
			return ""
		}
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// call makes a request. headers are pairs of name and value; "" removes one.
func (a *webAPI) call(method, path, body string, headers ...string) answer {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), tier.Patience())
	defer cancel()
	r := must(http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body)))(a.t)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	return answer{res.StatusCode, res.Header, must(io.ReadAll(res.Body))(a.t)}
}

// want makes a request that must be answered with status. An error must be a problem of RFC 9457
// with that status.
func (a *webAPI) want(status int, method, path, body string, headers ...string) answer {
	a.t.Helper()
	r := a.call(method, path, body, headers...)
	if r.status != status {
		a.t.Fatalf("%s %s %.200s: %d %s, want %d", method, path, body, r.status, r.body, status)
	}
	if status >= 400 && (r.header.Get("Content-Type") != "application/problem+json" ||
		r.field("status") != fmt.Sprint(status) || r.field("title") == "" || r.field("detail") == "") {
		a.t.Errorf("%s %s: %v %s is no problem of RFC 9457", method, path, r.header, r.body)
	}
	if r.header.Get("X-Request-Id") == "" || r.header.Get("Cache-Control") != "no-store" ||
		r.header.Get("X-Content-Type-Options") != "nosniff" {
		a.t.Errorf("%s %s: headers %v", method, path, r.header)
	}
	return r
}

// newRun creates a run, RUNNING if started.
func (a *webAPI) newRun(started bool) (path string) {
	a.t.Helper()
	path = "/v1/runs/" + a.want(201, "POST", "/v1/runs", `{"appPackage":"com.example"}`).field("runId")
	if started {
		a.want(200, "POST", path+"/start", "")
	}
	return path
}
