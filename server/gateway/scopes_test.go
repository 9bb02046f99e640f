package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/server/token"
)

// scopeOf lists the operations of the API and the scope that each needs.
var scopeOf = map[string]token.Scope{
	"listRuns": token.Read, "getRun": token.Read, "listEvents": token.Read, "createStreamTicket": token.Read,
	"streamRun": token.Read, "streamTopics": token.Read, "listSubscriptions": token.Read,
	"createRun": token.Write, "startRun": token.Write, "completeRun": token.Write, "failRun": token.Write,
	"appendEvents": token.Write,
	"cancelRun":    token.Operate, "subscribe": token.Operate, "unsubscribe": token.Operate,
	"nextEvents": token.Consume, "ackEvents": token.Consume, "nackEvent": token.Consume,
}

// principals holds tokens and tickets by the SHA-256 of their secrets. Other methods of the store
// panic.
type principals struct {
	token.Store
	bySum map[[32]byte]token.Principal
	sums  map[string][32]byte // by the id of a token
}

func (p principals) ValidToken(_ context.Context, id string) (t token.Token, sum [32]byte, err error) {
	sum, known := p.sums[id]
	if !known {
		return t, sum, &token.Refusal{Token: id, Why: token.Unknown}
	}
	return token.Token{ID: id, Tenant: p.bySum[sum].Tenant, Scopes: p.bySum[sum].Scopes}, sum, nil
}

func (p principals) RedeemTicket(_ context.Context, sum [32]byte) (token.Principal, error) {
	return p.bySum[sum], nil
}

// add returns a new token and a new ticket with these scopes.
func (p principals) add(t *testing.T, scopes ...token.Scope) (bearer, ticket string) {
	t.Helper()
	made, bearer, sum, err := token.New("shop", "", scopes)
	if err != nil {
		t.Fatal(err)
	}
	p.sums[made.ID], p.bySum[sum] = sum, token.Principal{Token: made.ID, Tenant: "shop", Scopes: scopes}
	ticket, ticketSum := token.NewTicket()
	p.bySum[ticketSum] = p.bySum[sum]
	return bearer, ticket
}

// described returns the operations in the description of the API: their patterns by their ids.
func described(t *testing.T, g *Gateway) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	patterns := map[string]string{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			patterns[op.OperationID] = strings.ToUpper(method) + " " + path
		}
	}
	return patterns
}

// Every operation refuses requests without a valid token, and tokens and tickets that have all
// scopes but the one that it needs. The gateway of this test has no stores: an operation that began
// would panic, which is answered with 500.
func TestOperationsNeedTheirScope(t *testing.T) {
	t.Parallel()
	p := principals{bySum: map[[32]byte]token.Principal{}, sums: map[string][32]byte{}}
	g, _ := without(t, func(c *Config) {
		c.Auth, c.Subscriptions = &token.Authenticator{Store: p}, struct{ subscription.Store }{}
	})
	patterns := described(t, g)
	for id := range scopeOf {
		if patterns[id] == "" {
			t.Errorf("%s is not described", id)
		}
	}
	for id, pattern := range patterns {
		scope, known := scopeOf[id]
		if !known {
			t.Errorf("%s: add %s and its scope to this test", pattern, id)
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{id}", uuid.NewString(), "{name}", "audit").Replace(path)
		query := url.Values{}
		if id == "streamTopics" {
			query.Set("topics", "run:"+uuid.NewString())
		}
		ask := func(bearer string) int {
			r := httptest.NewRequest(method, path+"?"+query.Encode(), http.NoBody)
			if bearer != "" {
				r.Header.Set("Authorization", "Bearer "+bearer)
			}
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, r)
			return w.Code
		}
		others := slices.DeleteFunc(slices.Clone(token.Scopes), func(s token.Scope) bool { return s == scope })
		with, withTicket := p.add(t, scope)
		without, withoutTicket := p.add(t, others...)
		const secret = len("obx_") + 12 + len("_") // begins here
		if none, wrong := ask(""), ask(with[:secret]+without[secret:]); none != 401 || wrong != 401 {
			t.Errorf("%s: status %d without a token, %d with a wrong secret, want 401", id, none, wrong)
		}
		if got := ask(without); got != 403 {
			t.Errorf("%s with a token without scope %s: status %d, want 403", id, scope, got)
		}
		if got := ask(with); got == 401 || got == 403 {
			t.Errorf("%s with scope %s: status %d", id, scope, got)
		}
		// Only streams accept tickets.
		stream := strings.HasPrefix(id, "stream")
		query.Set("ticket", withoutTicket)
		if got := ask(""); stream && got != 403 || !stream && got != 401 {
			t.Errorf("%s with a ticket without scope %s: status %d", id, scope, got)
		}
		query.Set("ticket", withTicket)
		if got := ask(""); stream && (got == 401 || got == 403) || !stream && got != 401 {
			t.Errorf("%s with a ticket with scope %s: status %d", id, scope, got)
		}
	}
}
