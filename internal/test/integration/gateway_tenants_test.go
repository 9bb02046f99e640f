package integration

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/server/token"
)

// tenantBodies are the bodies of the operations that take one.
var tenantBodies = map[string]string{
	"createRun": `{"appPackage": "theirs"}`, "failRun": `{"error": "x"}`, "appendEvents": `{"events": [{"type": "ERROR"}]}`,
	"subscribe": `{"from": "earliest"}`, "ackEvents": `{"events": [{"id": "` + uuid.NewString() + `", "token": "` + uuid.NewString() + `"}]}`,
	"nackEvent": `{"id": "` + uuid.NewString() + `", "token": "` + uuid.NewString() + `", "error": "x"}`,
}

// No operation of the API tells one tenant of another, or lets it change what the other has, where
// their names differ in case, blanks or Unicode normalization only, or where one is the id of the
// other's application.
func TestOperationsTellTenantsApart(t *testing.T) {
	t.Parallel()
	database := migrated(t)
	noError(t, pgmigrations.Up(t.Context(), database, "core", "crawl", "log"))
	noError(t, pgtest.ApplyRoles(t.Context(), database))
	a, _, _ := serveSubscriptions(t, database)
	const tenant, marker = "n\u00f6rth", "ours"
	own := a.as(tokenOf(t, a, tenant))
	id := own.want(201, "POST", "/v1/runs", `{"appPackage": "ours"}`).field("runId")
	own.want(201, "PUT", "/v1/subscriptions/ours", `{"from": "earliest", "types": ["ours"]}`)
	app := uuid.NewString()
	must(a.pool.Exec(t.Context(), "INSERT INTO apps (id, name, namespace) VALUES ($1, $2, $2)", app, tenant))(t)
	before := own.want(200, "GET", "/v1/runs/"+id, "").body
	listed := own.want(200, "GET", "/v1/subscriptions", "").body

	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	noError(t, json.Unmarshal(a.want(200, "GET", "/openapi.json", "").body, &doc))
	asked := 0
	for _, other := range []string{"N\u00d6RTH", "n\u00f6rth ", " n\u00f6rth", "no\u0308rth", "north", app} {
		bearer := tokenOf(t, a, other)
		for path, methods := range doc.Paths {
			for method, op := range methods {
				asked++
				path := strings.NewReplacer("{id}", id, "{name}", marker).Replace(path)
				if op.OperationID == "streamTopics" {
					path += "?topics=run:" + id
				}
				status, body := a.askBriefly(bearer, strings.ToUpper(method), path, tenantBodies[op.OperationID])
				names := strings.Contains(path, "/runs/"+id) || strings.Contains(path, marker) && op.OperationID != "subscribe"
				if status >= 500 || names && status != 404 || strings.Contains(body, marker) && status < 400 {
					t.Errorf("tenant %q, %s: status %d: %s", other, op.OperationID, status, body)
				}
			}
		}
	}
	if asked < 6*15 {
		t.Errorf("%d requests, want at least 15 operations for each of 6 tenants", asked)
	}
	if after := own.want(200, "GET", "/v1/runs/"+id, "").body; string(after) != string(before) {
		t.Errorf("the run was %s and is %s", before, after)
	}
	if after := own.want(200, "GET", "/v1/subscriptions", "").body; string(after) != string(listed) {
		t.Errorf("the subscriptions were %s and are %s", listed, after)
	}
}

// tokenOf makes a token of a tenant, also of one whose name CreateToken refuses as too much alike.
func tokenOf(t *testing.T, a *webAPI, tenant string) string {
	t.Helper()
	text := a.newToken(uuid.NewString(), time.Hour, token.Scopes...)
	id, _, err := token.Parse(text)
	noError(t, err)
	must(a.pool.Exec(t.Context(), "UPDATE outbox_tokens SET tenant_id = $2 WHERE id = $1", id, tenant))(t)
	return text
}

// askBriefly makes a request and reads what is answered within 300 ms: a stream may stay open.
func (a *webAPI) askBriefly(bearer, method, path, body string) (status int, answer string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 10*time.Second)
	defer cancel()
	r := must(http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body)))(a.t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+bearer)
	res, err := http.DefaultClient.Do(r)
	noError(a.t, err)
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		time.AfterFunc(300*time.Millisecond, cancel)
	}
	text, _ := io.ReadAll(res.Body) // what has come before cancel
	return res.StatusCode, string(text)
}
