package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/server/token"
)

// stuckSubscription answers no call until its context ends, and says when it is called.
type stuckSubscription struct {
	quietSubscription
	called chan struct{}
}

func (s stuckSubscription) Next(ctx context.Context, _, _ string, _ int) ([]subscription.Given, error) {
	s.called <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// While a tenant has as many requests in progress as it may, every further one of any operation is
// answered with 429. Requests of other tenants are not affected.
func TestEveryOperationTakesAPlaceOfItsTenant(t *testing.T) {
	t.Parallel()
	stuck := stuckSubscription{called: make(chan struct{}, 1)}
	var operations huma.API
	a := newAPI(t, func(c *gateway.Config) {
		c.MaxCalls, c.Timeout, c.Subscriptions = 1, 50*time.Millisecond, stuck
		c.Runs = crawl.NewService(quietRuns{}, crawl.ServiceConfig{})
		c.Hub = stream.New(gateway.Log(quietRuns{}, 2), quietBroker{}, stream.Config{})
		c.Routes = append(c.Routes, func(api huma.API) { operations = api })
	})
	bearer, other := a.token("shop", token.Scopes...), a.token("other", token.Scopes...)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/subscriptions/billing/events?wait=60s", nil)
		r.Header.Set("Authorization", "Bearer "+bearer)
		a.handler.ServeHTTP(httptest.NewRecorder(), r)
	})
	<-stuck.called
	bodies := map[string]string{"adminReplay": `{"set": "x"}`, "adminDiscard": `{"set": "x", "reason": "x"}`}
	path := strings.NewReplacer("{id}", uuid.NewString(), "{name}", "billing", "{table}", "outbox_events")
	n := 0
	for pattern, item := range operations.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put,
			"DELETE": item.Delete} {
			if op == nil || op.OperationID == "streamTopics" { // asks the database nothing before it is open
				continue
			}
			n++
			body := bodies[op.OperationID]
			if op.RequestBody != nil && body == "" {
				body = "{}"
			}
			if status, answer := a.ask(bearer, method, path.Replace(pattern), body); status != http.StatusTooManyRequests {
				t.Errorf("%s is answered with %d while the tenant has no place, want 429: %s", op.OperationID, status, answer)
			}
		}
	}
	if n < 30 {
		t.Errorf("the description has %d operations", n)
	}
	if status, answer := a.ask(other, http.MethodGet, "/v1/admin/session", ""); status != http.StatusOK {
		t.Errorf("another tenant is answered with %d: %s", status, answer)
	}
}
