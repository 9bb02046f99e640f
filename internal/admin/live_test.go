package admin_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/gateway"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/server/token"
)

// quietRuns has one running run without events. Other methods panic.
type quietRuns struct{ crawl.Store }

func (quietRuns) GetRun(_ context.Context, tenant string, id uuid.UUID) (crawl.Run, error) {
	return crawl.Run{ID: id, Tenant: tenant, Status: crawl.Running, Crawler: crawl.External}, nil
}

func (quietRuns) ListEvents(context.Context, string, uuid.UUID, int64, int) ([]crawl.Event, error) {
	return nil, nil
}

func (quietRuns) LastSeqs(context.Context, string, []uuid.UUID) (map[uuid.UUID]int64, error) {
	return nil, nil
}

func (quietRuns) EndedRuns(context.Context, string, []uuid.UUID) (map[uuid.UUID]int64, error) {
	return nil, nil
}

// quietBroker publishes nothing.
type quietBroker struct{}

func (quietBroker) Subscribe(context.Context, string, outbox.Listener) (bool, func()) {
	return true, func() {}
}

// quietSubscription has no events. Other methods panic.
type quietSubscription struct{ subscription.Store }

func (quietSubscription) Next(context.Context, string, string, int) ([]subscription.Given, error) {
	return nil, nil
}

func (quietSubscription) Ready(context.Context, []subscription.Name) ([]subscription.Name, error) {
	return nil, nil
}

// revocable are the tokens of an api that can be revoked while answers are in progress.
type revocable struct {
	*api
	mu      sync.Mutex
	revoked []string
}

// ValidTokens implements token.Store.
func (r *revocable) ValidTokens(_ context.Context, ids []string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(r.revoked, id) }), nil
}

func (r *revocable) revoke(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, _, _ := token.Parse(text)
	r.revoked = append(r.revoked, id)
}

// Every answer that can last long ends within two seconds after its token was revoked. A new
// operation that waits or streams must be added to this test.
func TestLongAnswersEndWithTheirToken(t *testing.T) {
	t.Parallel()
	var operations huma.API
	tokens := &revocable{}
	tokens.api = newAPI(t, func(c *gateway.Config) {
		c.Auth = &token.Authenticator{Store: tokens}
		c.Runs = crawl.NewService(quietRuns{}, crawl.ServiceConfig{})
		c.Hub = stream.New(gateway.Log(quietRuns{}, 2), quietBroker{}, stream.Config{})
		c.Subscriptions = quietSubscription{}
		c.Routes = append(c.Routes, func(api huma.API) { operations = api })
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := tokens.run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	server := httptest.NewServer(tokens.handler)
	defer server.Close()
	defer server.CloseClientConnections()
	operator := tokens.token(token.AllTenants, token.AdminRead, token.AdminWrite)
	for range 4 {
		tokens.fill(uuid.NewString(), operator)
	}
	var preview struct{ Set string }
	tokens.decode(&preview, operator, http.MethodPost, "/v1/admin/letters/preview", `{"all": true}`)
	requests := map[string]struct{ path, body string }{
		"streamRun":    {"/v1/runs/" + uuid.NewString() + "/stream", ""},
		"streamTopics": {"/v1/stream?topics=order.placed", ""},
		"nextEvents":   {"/v1/subscriptions/billing/events?wait=60s", ""},
		"adminWatch":   {"/v1/admin/overview/stream", ""},
		"adminReplay":  {"/v1/admin/letters/replay", fmt.Sprintf(`{"all": true, "set": %q, "rate": 1}`, preview.Set)},
	}
	var calls []func()
	const only = "adminDiscard" // lasts as long as its one transaction, which the same context ends
	for path, item := range operations.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put,
			"DELETE": item.Delete} {
			if op == nil || op.OperationID == only {
				continue
			}
			request, listed := requests[op.OperationID]
			answer := op.Responses["200"]
			streams := answer != nil && answer.Content["text/event-stream"] != nil
			if !streams && op.Metadata[gateway.Waiting] == nil {
				continue
			} else if !listed {
				t.Errorf("%s %s: add a request of %s that lasts to this test", method, path, op.OperationID)
				continue
			}
			delete(requests, op.OperationID)
			bearer := tokens.token("shop", token.Read, token.Consume)
			if strings.HasPrefix(op.OperationID, "admin") {
				bearer = tokens.token(token.AllTenants, token.AdminRead, token.AdminWrite)
			}
			calls = append(calls, func() {
				ended := make(chan time.Time, 1)
				go func() {
					defer func() { ended <- time.Now() }()
					r, err := http.NewRequestWithContext(t.Context(), method, server.URL+request.path,
						strings.NewReader(request.body))
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Authorization", "Bearer "+bearer)
					if request.body != "" {
						r.Header.Set("Content-Type", "application/json")
					}
					answer, err := http.DefaultClient.Do(r)
					if err != nil {
						return // cut off before it began
					}
					defer func() { _ = answer.Body.Close() }()
					_, _ = io.Copy(io.Discard, answer.Body)
				}()
				select {
				case <-ended:
					t.Errorf("%s: the answer ended before the token was revoked", op.OperationID)
					return
				case <-time.After(300 * time.Millisecond):
				}
				tokens.revoke(bearer)
				revoked := time.Now()
				select {
				case at := <-ended:
					if took := at.Sub(revoked); took > 2*time.Second {
						t.Errorf("%s: the answer ended %s after its token was revoked", op.OperationID, took)
					}
				case <-time.After(tier.Patience()):
					t.Errorf("%s: the answer goes on after its token was revoked", op.OperationID)
				}
			})
		}
	}
	if len(requests) > 0 {
		t.Errorf("not operations that last: %v", requests)
	}
	var calling sync.WaitGroup
	for _, call := range calls {
		calling.Go(call)
	}
	calling.Wait()
}
