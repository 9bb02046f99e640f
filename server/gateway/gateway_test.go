package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/token"
)

// without returns a gateway whose service has no store: for what does not come that far.
func without(t *testing.T, change ...func(*Config)) (*Gateway, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	cfg := Config{Runs: crawl.NewService(nil, crawl.ServiceConfig{}), Hub: stream.New(nil, nil, stream.Config{}),
		Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for _, f := range change {
		f(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g, &log
}

func TestAPanicIsAnAnswer(t *testing.T) {
	t.Parallel()
	g, log := without(t) // each operation panics: there is no store
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/v1/runs?ticket=obt_secret", nil))
	if w.Code != 400 { // there is no such parameter
		t.Errorf("got %d", w.Code)
	}
	w = httptest.NewRecorder()
	g.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1:8080/v1/runs", nil))
	if w.Code != 500 || strings.Contains(w.Body.String(), "nil pointer") ||
		w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	for _, want := range []string{"nil pointer", "stack=", "request_id=" + w.Header().Get("X-Request-Id"), "status=500"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is missing in the log:\n%s", want, log)
		}
	}
	if strings.Contains(log.String(), "obt_secret") {
		t.Errorf("a ticket is in the log:\n%s", log)
	}
}

// What has begun cannot become an error, and must not end as if it were complete.
func TestAPanicInTheMiddleCutsTheAnswerOff(t *testing.T) {
	t.Parallel()
	g, log := without(t)
	server := httptest.NewServer(g.identified(g.logged(g.recovered(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		if _, err := io.WriteString(w, "half"); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).Flush(); err != nil { // through all wrappers
			t.Error(err)
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		panic("oh")
	})))))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err == nil || string(body) != "half" {
		t.Errorf("read %q, %v", body, err)
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	server.Close() // waits for the handler
	if !strings.Contains(log.String(), "panic=oh") {
		t.Errorf("log:\n%s", log)
	}
}

// Levels: a line for each change and each refusal, reads at Debug.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	g, log := without(t, func(c *Config) { c.Auth = &token.Authenticator{} })
	for _, path := range []string{"/openapi.json", "/v1/runs?limit=" + strings.Repeat("9", 300),
		"/v1/stream?topics=a&ticket=obt_x&x=obx_y"} {
		g.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	got := log.String()
	if strings.Contains(got, "openapi") || strings.Count(got, "msg=request") != 2 || strings.Contains(got, "obt_x") ||
		strings.Contains(got, "obx_y") || len(got) > 1200 {
		t.Errorf("log:\n%s", got)
	}
}

// A page of evil.example can give its name our address, and is then of the same origin as we. It
// cannot make the browser send another Host.
func TestWithoutAuthenticationTheHostIsOurs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host   string
		auth   *token.Authenticator
		status int
	}{
		{"evil.example:8080", nil, 421}, {"localhost.evil.example", nil, 421}, {"127.0.0.1.evil.example", nil, 421},
		{"", nil, 421}, {"a b", nil, 421},
		{"localhost:8080", nil, 400}, {"127.0.0.1:8080", nil, 400}, {"[::1]:8080", nil, 400}, {"api.example.com", nil, 421},
		{"evil.example:8080", &token.Authenticator{}, 401},
	} {
		g, _ := without(t, func(cfg *Config) { cfg.Auth = c.auth })
		r := httptest.NewRequest("GET", "/v1/runs/not-a-uuid", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		if g.Handler().ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%q: %d, want %d", c.host, w.Code, c.status)
		}
	}
}

// Everybody on this machine is one thing, everybody before its proxy another.
func TestWithoutAuthenticationNoProxy(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Forwarded-Host", "X-Real-IP"} {
		for auth, status := range map[*token.Authenticator]int{nil: 403, {}: 401} {
			g, _ := without(t, func(cfg *Config) { cfg.Auth = auth })
			r := httptest.NewRequest("GET", "http://localhost/v1/runs", nil)
			r.Header.Set(header, "for=203.0.113.9")
			w := httptest.NewRecorder()
			if g.Handler().ServeHTTP(w, r); w.Code != status {
				t.Errorf("%s: %d, want %d: %s", header, w.Code, status, w.Body)
			}
		}
	}
	for public, want := range map[string]bool{"https://api.example.com": false, "http://10.0.0.7:8080": false,
		"http://localhost:8080": true, "http://[::1]:8080/": true} {
		_, err := New(Config{Runs: crawl.NewService(nil, crawl.ServiceConfig{}), PublicURL: public})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "set Auth") {
			t.Errorf("public URL %s without authentication: %v", public, err)
		}
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errors.New("refused"))}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("get run: %w", refused), true},
		{fmt.Errorf("get run: %w", context.DeadlineExceeded), true},
		{fmt.Errorf("get run: %w", io.ErrUnexpectedEOF), true},
		{sqlState("57P01"), true}, {sqlState("57P03"), true}, {sqlState("53300"), true}, {sqlState("08006"), true},
		{sqlState("28P01"), true}, {sqlState("40001"), true}, {sqlState("25006"), true},
		{sqlState("42P01"), false}, {sqlState("23505"), false}, {sqlState("57014"), false},
		{retryable(true), true}, {retryable(false), false},
		{errors.New("other"), false},
	} {
		if got := unavailable(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

type sqlState string

func (s sqlState) Error() string    { return "SQLSTATE " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

type retryable bool

func (r retryable) Error() string     { return "conn" }
func (r retryable) SafeToRetry() bool { return bool(r) }

func FuzzCursor(f *testing.F) {
	// A time in the year 148108.
	f.Add(base64.RawURLEncoding.EncodeToString(append([]byte{cursorVersion, 0x40}, make([]byte, cursorSize-2)...)))
	f.Add(formatCursor(crawl.Cursor{CreatedAt: time.Date(2026, 11, 21, 6, 0, 0, 123456000, time.UTC), ID: uuid.New()}))
	f.Add("")
	f.Add("AQ==")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCursor(s)
		if err != nil {
			if !errors.Is(err, crawl.ErrInvalid) || c != (crawl.Cursor{}) {
				t.Errorf("%q: %+v, %v", s, c, err)
			}
			return
		}
		if y := c.CreatedAt.Year(); y < 1 || y > 9999 {
			t.Errorf("%q is of the year %d, which PostgreSQL may not have", s, y)
		}
		if again := formatCursor(c); again != s {
			t.Errorf("%q is read as %+v, which is %q", s, c, again)
		}
	})
}

// FuzzBody: whatever is sent, a body is taken or refused with one problem, and what is taken is
// what encoding/json sees in it.
func FuzzBody(f *testing.F) {
	for _, s := range []string{`{"events":[{"type":"A","payload":{"a":1}}]}`, `{"events":[{"type":"A","id":"x"}]}`,
		`{"events":null}`, `{"Events":[]}`, `{"events":[],"events":[]}`, `{"events":[{"payload":1e999}]}`, "{\"a\xff\":1}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b body[AppendEvents]
		if err := b.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		refused := b.Resolve(nil)
		if len(refused) > 0 {
			if b.refused.Status != 400 || !strings.HasPrefix(b.refused.Errors[0].Location, "body") ||
				b.refused.Errors[0].Message == "" {
				t.Errorf("%q: %+v", data, b.refused)
			}
			return
		}
		var other AppendEvents
		if err := json.Unmarshal(data, &other); err != nil || len(other.Events) != len(b.Value.Events) {
			t.Errorf("%q: %v", data, err)
		}
	})
}

func TestWhatIsWrongWithABody(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		`[]`: "body: is an array, want an object", `7`: "body: is a number, want an object",
		`{"maxSteps":"7"}`: "body.maxSteps: is a string, want a whole number",
		`{"goal":{}}`:      "body.goal: is an object, want a string", `{"goal":true}`: "body.goal: is true, want a string",
	} {
		var b body[CreateRun]
		if err := b.UnmarshalJSON([]byte(sent)); err != nil {
			t.Fatal(err)
		}
		if refused := b.Resolve(nil); len(refused) != 1 || b.refused.Errors[0].Location+": "+
			b.refused.Errors[0].Message != want {
			t.Errorf("%s: %v, want %q", sent, refused, want)
		}
	}
}

func TestTheDescriptionIsComplete(t *testing.T) {
	t.Parallel()
	g, _ := without(t)
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 {
			t.Fatalf("%s: %d", path, w.Code)
		}
		return w
	}
	if yaml := get("/openapi.yaml"); !strings.HasPrefix(yaml.Body.String(), "components:") &&
		!strings.Contains(yaml.Body.String(), "openapi: 3.1") {
		t.Errorf("yaml: %.100s", yaml.Body)
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Security    []map[string][]string
			Parameters  []struct {
				Name, In string
				Required bool
			}
			RequestBody struct {
				Content map[string]struct{ Schema json.RawMessage }
			}
			Responses map[string]struct {
				Description string
				Content     map[string]json.RawMessage
			}
		}
		Components struct {
			Schemas         map[string]json.RawMessage
			SecuritySchemes map[string]json.RawMessage
		}
	}
	text := get("/openapi.json").Body.String()
	if err := json.Unmarshal([]byte(text), &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Fatalf("%v, version %s", err, doc.OpenAPI)
	}
	// Every reference leads somewhere.
	for rest := text; ; {
		_, after, found := strings.Cut(rest, `"$ref": "#/components/schemas/`)
		if !found {
			break
		}
		name, _, _ := strings.Cut(after, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("there is no schema %s", name)
		}
		rest = after
	}
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if ids[op.OperationID] || op.OperationID == "" {
				t.Errorf("%s %s: operation id %q", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
			if !slices.Contains(g.Routes(), strings.ToUpper(method)+" "+path) {
				t.Errorf("%s %s is no route", method, path)
			}
			if len(op.Security) == 0 || doc.Components.SecuritySchemes[bearerScheme] == nil {
				t.Errorf("%s %s: anybody may", method, path)
			}
			if op.Responses["422"].Description != "" {
				t.Errorf("%s %s: responses %v", method, path, op.Responses)
			}
			for _, status := range []string{"401", "429", "503"} { // every request may get these
				if op.Responses[status].Content["application/problem+json"] == nil {
					t.Errorf("%s %s: status %s is not described", method, path, status)
				}
			}
			if strings.Contains(path, "{id}") &&
				(len(op.Parameters) == 0 || op.Parameters[0].Name != "id" || !op.Parameters[0].Required) {
				t.Errorf("%s %s: parameters %v", method, path, op.Parameters)
			}
			// What is described is served: nobody answers with 404 for a path or 405 for a method
			// that it has.
			concrete := "http://[::1]:8080" + strings.ReplaceAll(path, "{id}", "x")
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, httptest.NewRequest(strings.ToUpper(method), concrete, nil))
			if w.Code == http.StatusNotFound || w.Code == http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, concrete, w.Code)
			}
		}
	}
	if len(ids) != len(g.Routes()) {
		t.Errorf("%d operations, and the routes %q", len(ids), g.Routes())
	}
	for _, want := range []string{"createRun", "getRun", "listRuns", "startRun", "completeRun", "failRun", "cancelRun",
		"appendEvents", "listEvents", "createStreamTicket"} {
		if !ids[want] {
			t.Errorf("%s is not described", want)
		}
	}
}

func TestHarmless(t *testing.T) {
	t.Parallel()
	got := harmless(url.Values{"ticket": {"a", "b"}, "x": {"obx_1"}, "y": {"ok"}, "z": {strings.Repeat("é", 300)}})
	if strings.Contains(got, "ticket=a") || strings.Contains(got, "obx_") || !strings.Contains(got, "y=ok") ||
		len(got) > 500 {
		t.Error(got)
	}
}
