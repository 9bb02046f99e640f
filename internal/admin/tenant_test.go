package admin_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/test/sqlitetest"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/token"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// api is the admin API of a database. It is also the store of its tokens; other methods of that
// store panic.
type api struct {
	t *testing.T
	token.Store
	tokens  map[string]token.Token
	sums    map[string][32]byte
	handler http.Handler
	run     func(context.Context) error
	db      *sqlite.DB
	methods map[string]string // of the operations, by their ids
}

// database is an SQLite file as operators see it. Other methods of admin.Database panic.
type database struct {
	operate.Database
	missing
	file *sqlite.DB
}

type missing struct{ admin.Database }

// Letters implements admin.Database.
func (d database) Letters(ctx context.Context, layouts []outbox.Layout) (deadletter.Store, error) {
	return sqlite.OpenDeadLetters(ctx, d.file, sqlite.DeadLettersConfig{Layouts: layouts})
}

func newAPI(t *testing.T, change ...func(*gateway.Config)) *api {
	t.Helper()
	a := &api{t: t, db: sqlitetest.Files(t)(t), tokens: map[string]token.Token{}, sums: map[string][32]byte{},
		methods: map[string]string{}}
	db := database{Database: operate.On(sqlitecold.DB{File: a.db}), file: a.db}
	quiet := slog.New(slog.DiscardHandler)
	desk := admin.NewDesk(admin.DeskConfig{Database: db, Wake: func(string) {}, Logger: quiet,
		Examination: condition.Examination{DB: db, Limits: condition.Usual}})
	cfg := gateway.Config{Runs: crawl.NewService(nil, crawl.ServiceConfig{}), Logger: quiet,
		Auth: &token.Authenticator{Store: a}, Routes: []func(huma.API){desk.Route}}
	for _, f := range change {
		f(&cfg)
	}
	g, err := gateway.New(cfg)
	ok(t, err)
	a.handler, a.run = g.Handler(), g.Run
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	a.decode(&doc, "", http.MethodGet, "/openapi.json", "")
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if strings.HasPrefix(path, "/v1/admin/") {
				a.methods[op.OperationID] = strings.ToUpper(method)
			}
		}
	}
	return a
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ValidToken implements token.Store.
func (a *api) ValidToken(_ context.Context, id string) (token.Token, [32]byte, error) {
	return a.tokens[id], a.sums[id], nil
}

// token returns a new token.
func (a *api) token(tenant string, scopes ...token.Scope) string {
	a.t.Helper()
	made, text, sum, err := token.New(tenant, "", scopes)
	ok(a.t, err)
	a.tokens[made.ID], a.sums[made.ID] = made, sum
	return text
}

// ask sends a request that accepts answers that are up to 15 s old, as the page at /ui does.
func (a *api) ask(bearer, method, path, body string) (status int, answer string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 3*time.Second)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Header.Set("Cache-Control", "max-age=15")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+bearer)
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// decode reads the answer of a request that must succeed.
func (a *api) decode(into any, bearer, method, path, body string) {
	a.t.Helper()
	status, answer := a.ask(bearer, method, path, body)
	if status != http.StatusOK {
		a.t.Fatalf("%s %s: status %d: %s", method, path, status, answer)
	}
	ok(a.t, json.Unmarshal([]byte(answer), into))
}

// owned are the rows of one tenant: an event that waits for its next attempt, and a dead letter.
type owned struct{ event, position, deadEvent, letter string }

// fill writes the rows of a tenant.
func (a *api) fill(tenant, operator string) (o owned) {
	a.t.Helper()
	o.event, o.deadEvent = uuid.NewString(), uuid.NewString()
	for _, id := range []string{o.deadEvent, o.event} {
		ok(a.t, a.db.Writes().QueryRowContext(a.t.Context(), `INSERT INTO outbox_events (id, event_topic, occurred_at,
			tenant_id, source_bc, payload, status, retry_count, next_retry_at)
			VALUES (?1, 'order.placed', '2026-01-01T00:00:00.000000Z', ?2, 'shop', json_object('of', ?2), 'FAILED', 1,
			'2126-01-01T00:00:00.000000Z') RETURNING position`, id, tenant).Scan(&o.position))
	}
	var done struct{ Events int }
	a.decode(&done, operator, http.MethodPost, "/v1/admin/events/skip",
		`{"ids": ["`+o.deadEvent+`"], "upTo": 99, "reason": "to make a dead letter"}`)
	var letters struct{ Items []struct{ ID string } }
	a.decode(&letters, operator, http.MethodGet, "/v1/admin/letters?limit=9&tenant="+url.QueryEscape(tenant), "")
	if done.Events != 1 || len(letters.Items) != 1 {
		a.t.Fatalf("%s: %d events skipped, %d dead letters", tenant, done.Events, len(letters.Items))
	}
	o.letter = letters.Items[0].ID
	return o
}

// A token of one tenant neither sees nor changes rows of another tenant, whichever operation it
// calls and however it names the rows. Operations that concern all tenants refuse it. Every
// operation refuses a token without its scope.
//
// Names are compared exactly: no pair of names is one tenant, and no name is the id of another
// tenant's application.
func TestTenantTokenReachesOnlyItsTenant(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"north", "south"}, {"north", "North"}, {"NORTH", "north"}, {"north", "north "},
		{" north", "north"}, {"n\u00f6rth", "no\u0308rth"}, {"no\u0308rth", "n\u00f6rth"}, {"straße", "STRASSE"},
		{"01900000-0000-7000-8000-00000000000a", "south"}} {
		t.Run(names[0]+" and "+names[1], func(t *testing.T) {
			t.Parallel()
			reachesOnlyItsTenant(t, names[0], names[1])
		})
	}
}

// reachesOnlyItsTenant tries all operations as one tenant, called north here, with the rows of
// another, called south.
func reachesOnlyItsTenant(t *testing.T, name, other string) {
	a := newAPI(t)
	if id, err := uuid.Parse(name); err == nil {
		_, err := a.db.Writes().ExecContext(t.Context(), "INSERT INTO apps (id, name, namespace) VALUES (?1, ?2, ?2)",
			id.String(), other)
		ok(t, err)
	}
	quoted := func(name string) string {
		text, err := json.Marshal(name)
		ok(t, err)
		return string(text)
	}
	asked := url.QueryEscape(other)
	all := a.token(token.AllTenants, token.AdminRead, token.AdminWrite)
	bearer := a.token(name, token.AdminRead, token.AdminWrite)
	without := map[token.Scope]string{}
	for _, scope := range token.Scopes {
		without[scope] = a.token(name,
			slices.DeleteFunc(slices.Clone(token.Scopes), func(s token.Scope) bool { return s == scope })...)
	}
	changing := []string{"adminPause", "adminResume", "adminRetry", "adminSkip", "adminReplay", "adminDiscard"}
	north, south := a.fill(name, all), a.fill(other, all)
	event, letter := `{"ids": ["`+south.event+`"], "upTo": 99, "reason": "x"}`, `"ids": ["`+south.letter+`"]`
	var preview struct{ Set string }
	a.decode(&preview, all, http.MethodPost, "/v1/admin/letters/preview", "{"+letter+"}")
	set := `, "set": "` + preview.Set + `"`
	own, theirs := `{"all": true, "upTo": 99, "reason": "x"}`, `{"tenant": `+quoted(other)+`, "upTo": 99, "reason": "x"}`
	rows := func(limit string) string { // another limit is another request, whose answer is a new one
		_, events := a.ask(all, http.MethodGet, "/v1/admin/events?tenant="+asked+"&limit="+limit, "")
		_, letters := a.ask(all, http.MethodGet, "/v1/admin/letters?tenant="+asked+"&state=all&limit="+limit, "")
		return events + letters
	}
	before, called := rows("8"), map[string]bool{}
	refused := "this token is of tenant " + strings.Trim(quoted(name), `"`)
	alone := refused + " alone"
	for _, c := range []struct {
		operation, path, body string
		status                int
		says                  string
	}{
		{"adminSession", "/session", "", 200, `"tenant":` + quoted(name)},
		{"adminOverview", "/overview", "", 403, refused},
		{"adminWatch", "/overview/stream", "", 403, refused},
		{"adminHistory", "/history", "", 403, refused},
		{"adminConditions", "/conditions", "", 403, refused},
		{"adminLanes", "/tables/outbox_events/lanes", "", 403, refused},
		{"adminBacklog", "/tables/outbox_events/backlog?by=tenant", "", 403, refused},
		{"adminPauses", "/pauses", "", 403, refused},
		{"adminPause", "/pauses", `{"topic": "order.placed", "reason": "x"}`, 403, refused},
		{"adminResume", "/resume", `{"topic": "order.placed"}`, 403, refused},
		{"adminAudit", "/audit", "", 403, refused},
		{"adminSettings", "/settings", "", 403, refused},

		{"adminEvents", "/events", "", 200, north.event},
		{"adminEvents", "/events?tenant=" + asked, "", 403, alone},
		{"adminEvent", "/events/" + north.event, "", 200, north.event},
		{"adminEvent", "/events/" + south.event, "", 404, ""},
		{"adminEvent", "/events/" + south.position, "", 404, ""},
		{"adminEvent", "/events/" + south.event + "?tenant=" + asked, "", 403, alone},
		{"adminPayload", "/events/" + north.event + "/payload", "", 200, quoted(name)},
		{"adminPayload", "/events/" + south.event + "/payload", "", 404, ""},
		{"adminPayload", "/events/" + south.event + "/payload?tenant=" + asked, "", 403, alone},
		{"adminEventsPreview", "/events/preview", event, 200, `"events":0`},
		{"adminEventsPreview", "/events/preview", theirs, 403, alone},
		{"adminEventsPreview", "/events/preview", own, 200, `"events":1`},
		{"adminRetry", "/events/retry", event, 200, `"events":0`},
		{"adminRetry", "/events/retry", theirs, 403, alone},
		{"adminRetry", "/events/retry", own, 200, `"events":1`},
		{"adminSkip", "/events/skip", event, 200, `"events":0`},
		{"adminSkip", "/events/skip", theirs, 403, alone},
		{"adminSkip", "/events/skip", own, 200, `"events":1`},

		{"adminLetters", "/letters", "", 200, north.letter},
		{"adminLetters", "/letters?tenant=" + asked, "", 403, alone},
		{"adminLetterGroups", "/letters/groups", "", 200, `"pending":2`}, // with the event skipped above
		{"adminLetterGroups", "/letters/groups?tenant=" + asked, "", 403, alone},
		{"adminLetter", "/letters/" + north.letter, "", 200, north.letter},
		{"adminLetter", "/letters/" + south.letter, "", 404, ""},
		{"adminLetter", "/letters/" + south.deadEvent, "", 404, ""},
		{"adminLettersPreview", "/letters/preview", "{" + letter + "}", 200, `"letters":0`},
		{"adminLettersPreview", "/letters/preview", `{"tenant": ` + quoted(other) + "}", 403, alone},
		{"adminLettersPreview", "/letters/preview", `{"all": true}`, 200, `"letters":2`},
		{"adminReplay", "/letters/replay", "{" + letter + set + "}", 409, ""},
		{"adminReplay", "/letters/replay", `{"tenant": ` + quoted(other) + set + "}", 403, alone},
		{"adminDiscard", "/letters/discard", "{" + letter + set + `, "reason": "x"}`, 409, ""},
		{"adminDiscard", "/letters/discard", `{"tenant": ` + quoted(other) + `, "reason": "x"` + set + "}", 403, alone},
	} {
		called[c.operation] = true
		method, scope := a.methods[c.operation], token.AdminRead
		if slices.Contains(changing, c.operation) {
			scope = token.AdminWrite
		}
		if status, answer := a.ask(without[scope], method, "/v1/admin"+c.path, c.body); status != 403 ||
			!strings.Contains(answer, "scope "+string(scope)) {
			t.Errorf("%s without scope %s: status %d: %s", c.operation, scope, status, answer)
		}
		if method == http.MethodGet && !strings.HasPrefix(c.path, "/overview") {
			a.ask(all, method, "/v1/admin"+c.path, "") // north must not be given this answer
		}
		status, answer := a.ask(bearer, method, "/v1/admin"+c.path, c.body)
		if status != c.status || !strings.Contains(answer, c.says) {
			t.Errorf("%s %s %s: status %d, want %d and %q: %s",
				method, c.path, c.body, status, c.status, c.says, answer)
		}
		if strings.Contains(answer, quoted(other)) {
			t.Errorf("%s %s %s tells north about south: %s", method, c.path, c.body, answer)
		}
	}
	for operation := range a.methods {
		if !called[operation] {
			t.Errorf("%s: add a call of it to this test", operation)
		}
	}
	if after := rows("9"); after != before {
		t.Errorf("the rows of south were\n%s\nand are\n%s", before, after)
	}
}
