package integration

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/server/token"
)

const logRow = "INSERT INTO outbox_log (event_topic, occurred_at, tenant_id, aggregate_id, source_bc, payload, " +
	"metadata) VALUES ('order.placed', now(), $1, $2, 'test', '{\"n\": 1}', '{\"trace\": \"x\"}')"

// A gateway serves the subscriptions of its tenant by the functions of the database, as its least
// role. One that waits is answered when an event is committed; another gateway, after the first has
// died, takes acknowledgements of what the first has given.
func TestSubscriptionOverHTTP(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	database := migrated(t)
	noError(t, pgmigrations.Up(t.Context(), database, "core", "log"))
	noError(t, pgtest.ApplyRoles(t.Context(), database))
	var servers []*httptest.Server
	var gateways []*gateway.Gateway
	serve := func() *webAPI {
		a, server, g := serveSubscriptions(t, database)
		servers, gateways = append(servers, server), append(gateways, g)
		return a
	}
	a := serve()
	const s = "/v1/subscriptions/billing"
	a.want(404, "GET", s+"/events", "")
	a.want(400, "PUT", s, `{"from": "yesterday"}`)
	a.want(400, "PUT", s, `{"lease": "-1s"}`)
	a.want(201, "PUT", s, `{"from": "earliest", "max_attempts": 2}`)
	a.want(200, "PUT", s, `{"max_attempts": 2}`)
	a.want(409, "PUT", s, `{"max_attempts": 3}`)
	if n := a.want(200, "GET", s+"/events", ""); string(n.body) != "{\"events\":[]}\n" {
		t.Errorf("nothing is %s", n.body)
	}
	must(a.pool.Exec(t.Context(), "UPDATE outbox_subscriptions SET paused_at = now()"))(t)
	if paused := a.want(200, "GET", s+"/events?wait=50ms", "").body; string(paused) != `{"events":[],"paused":true}`+"\n" {
		t.Errorf("paused, it answers %s", paused)
	}
	must(a.pool.Exec(t.Context(), "UPDATE outbox_subscriptions SET paused_at = NULL"))(t)
	got := make(chan answer, 1)
	go func() { got <- a.call("GET", s+"/events?wait=60s&most=10", "") }()
	must(a.pool.Exec(t.Context(), logRow, "shop", "42"))(t)
	must(a.pool.Exec(t.Context(), logRow, "acme", "1"))(t)
	first := <-got
	for field, want := range map[string]string{"events.0.type": "order.placed", "events.0.key": "42",
		"events.0.tenant":  "shop",
		"events.0.attempt": "1", "events.0.payload.n": "1", "events.0.metadata.trace": "x", "events.1.id": ""} {
		if got := first.field(field); got != want {
			t.Errorf("%s is %q, want %q: %s", field, got, want, first.body)
		}
	}
	id, receipt := first.field("events.0.id"), first.field("events.0.token")
	if !strings.Contains(string(first.body), `"position":"`) {
		t.Errorf("the position is no string: %s", first.body)
	}
	servers[0].CloseClientConnections() // as one that is killed between giving and acknowledging
	b := serve()
	body := func(token string) string {
		return fmt.Sprintf(`{"id": %q, "token": %q, "error": "full", "delay": "0s"}`, id, token)
	}
	b.want(409, "POST", s+"/nack", body(id))
	failed := b.want(200, "POST", s+"/nack", body(receipt))
	if failed.field("attempt") != "1" || failed.field("dead") != "false" || failed.field("again_at") == "" {
		t.Errorf("given back: %s", failed.body)
	}
	b.want(409, "POST", s+"/nack", body(receipt))
	second := b.want(200, "GET", s+"/events?wait=30s", "")
	if second.field("events.0.attempt") != "2" {
		t.Errorf("the second attempt: %s", second.body)
	}
	ack := func(id, token string) string { return fmt.Sprintf(`{"events": [{"id": %q, "token": %q}]}`, id, token) }
	late := b.want(200, "POST", s+"/ack", ack(id, receipt))
	if late.field("acknowledged") != "0" || late.field("refused.0.reason") != "lapsed" ||
		late.field("refused.0.id") != id {
		t.Errorf("late: %s", late.body)
	}
	its := ack(id, second.field("events.0.token"))
	if done := b.want(200, "POST", s+"/ack", its); done.field("acknowledged") != "1" {
		t.Errorf("acknowledged: %s", done.body)
	}
	if twice := b.want(200, "POST", s+"/ack", its); twice.field("refused.0.reason") != "unknown" {
		t.Errorf("twice: %s", twice.body)
	}
	must(a.pool.Exec(t.Context(), `INSERT INTO outbox_log (event_topic, occurred_at, tenant_id, aggregate_type, aggregate_id,
		source_bc, payload) SELECT 't', now(), 'shop', of, '42', 'test', '1' FROM unnest('{Order,Invoice,Order}'::text[]) of`))(t)
	three := b.want(200, "GET", s+"/events", "")
	order, invoice := three.field("events.0.order_key"), three.field("events.1.order_key")
	if order == "" || order == invoice || order != three.field("events.2.order_key") {
		t.Errorf("one id of two types: %s", three.body)
	}
	reasoned := func(reason string) string {
		return fmt.Sprintf(`{"id": %q, "token": %q, "error": "no number", "reason": %q}`, three.field("events.1.id"),
			three.field("events.1.token"), reason)
	}
	b.want(400, "POST", s+"/nack", reasoned("Boredom"))
	if dead := b.want(200, "POST", s+"/nack", reasoned("DeserializationFailed")); dead.field("dead") != "true" {
		t.Errorf("given up: %s", dead.body)
	}
	var why string
	noError(t, a.pool.QueryRow(t.Context(), "SELECT error_reason FROM job_dlq").Scan(&why))
	if why != "DeserializationFailed" {
		t.Errorf("the dead letter has the reason %s", why)
	}
	for path, body := range map[string]string{s + "/ack": `{"events": []}`, s + "/nack": `{"id": "x"}`,
		"/v1/subscriptions/none/ack": ""} {
		if r := b.call("POST", path, body); r.status != 400 && r.status != 404 {
			t.Errorf("%s %s: %d %s", path, body, r.status, r.body)
		}
	}
	for _, query := range []string{"wait=61s", "wait=x", "most=0", "most=1001", "limit=1"} {
		b.want(400, "GET", s+"/events?"+query, "")
	}
	// Scopes and tenants.
	b.as(b.newToken("shop", 0, token.Read, token.Operate)).want(403, "GET", s+"/events", "")
	b.as(b.newToken("shop", 0, token.Consume)).want(403, "DELETE", s, "")
	other := b.as(b.newToken("acme", 0, token.Scopes...))
	other.want(404, "GET", s+"/events", "")
	other.want(404, "POST", s+"/ack", ack(id, receipt))
	other.want(404, "DELETE", s, "")
	other.want(409, "PUT", s, `{"max_attempts": 2}`)
	if list := other.want(200, "GET", "/v1/subscriptions", ""); list.field("items.0.name") != "" {
		t.Errorf("another tenant sees %s", list.body)
	}
	if list := b.want(200, "GET", "/v1/subscriptions", ""); list.field("items.0.name") != "billing" ||
		list.field("items.0.outstanding") != "2" {
		t.Errorf("the list: %s", list.body)
	}
	// A gateway that stops answers who waits.
	go func() { got <- b.call("GET", s+"/events?wait=60s", "") }()
	gateways[1].DrainStreams(t.Context())
	if r := <-got; r.status != 200 || r.field("events.0.id") != "" {
		t.Errorf("a gateway that stops answers %d %s", r.status, r.body)
	}
	b.want(204, "DELETE", s, "")
	b.want(404, "DELETE", s, "")
	without := newAPIIn(t, database)
	without.want(501, "GET", s+"/events", "")
}

// serveSubscriptions runs a gateway that serves them, until the test ends.
func serveSubscriptions(t *testing.T, database string) (*webAPI, *httptest.Server, *gateway.Gateway) {
	t.Helper()
	var cfg gateway.Config
	pool := openPool(t, database+roleOf(database))
	subscriptions := must(pgstore.OpenSubscriptions(t.Context(), pool))(t)
	a := newAPIIn(t, database, func(c *gateway.Config) {
		c.Subscriptions = subscriptions
		cfg = *c
	})
	g := must(gateway.New(cfg))(t) // one whose Run this test calls
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		stop()
		noError(t, <-ended)
	})
	a.url = server.URL
	return a, server, g
}

func roleOf(database string) string {
	if strings.Contains(database, "?") {
		return "&role=outbox_gateway"
	}
	return "?role=outbox_gateway"
}
