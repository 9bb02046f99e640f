package gateway

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

// Names of the ways to say who one is, in the description.
const (
	bearerScheme = "bearer"
	ticketScheme = "ticket"
)

// anybody is who makes each request when authentication is off.
var anybody = token.Principal{Tenant: crawl.DefaultTenant, Scopes: token.Scopes}

// gate is what requests pass before a handler has them: who makes them, whether they may, and the
// limits of all.
type gate struct {
	refuser
	cfg   *Config
	live  *live
	calls *crawl.Shares // requests of each tenant in progress; nil: no limit
}

// principal returns who opens a stream: by the Authorization header, else by a ticket, because an
// EventSource cannot send a header.
func (g gate) principal(r *http.Request) (token.Principal, error) {
	if ticket := r.URL.Query().Get("ticket"); g.cfg.Auth != nil && ticket != "" && r.Header.Get("Authorization") == "" {
		return g.cfg.Auth.RedeemTicket(r.Context(), ticket)
	}
	return g.bearer(r.Context(), r)
}

// bearer returns who makes a request, by the Authorization header alone: a URL ends up in logs and
// histories.
func (g gate) bearer(ctx context.Context, r *http.Request) (token.Principal, error) {
	if g.cfg.Auth == nil {
		return anybody, nil
	}
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return token.Principal{}, errNoToken
	}
	return g.cfg.Auth.Authenticate(ctx, strings.TrimSpace(text))
}

// Waiting is the metadata of an operation that may take so long (a time.Duration) beyond
// Config.Timeout, to wait or to answer bit by bit.
const Waiting = "waiting"

type principalKey struct{}

// PrincipalOf returns who makes the request of an operation.
func PrincipalOf(ctx context.Context) token.Principal { return principalOf(ctx) }

func principalOf(ctx context.Context) token.Principal {
	p, _ := ctx.Value(principalKey{}).(token.Principal) // guard has set it; without it, no tenant has any run
	return p
}

// guard lets a request of the API through whose principal has the operation's scope, and limits its
// time.
func (g gate) guard(hc huma.Context, next func(huma.Context)) {
	waits, _ := hc.Operation().Metadata[Waiting].(time.Duration)
	ctx, cancel := context.WithTimeout(hc.Context(), g.cfg.Timeout+waits)
	defer cancel()
	r, w := humago.Unwrap(hc)
	if seen, ok := w.(*watched); ok && waits > 0 {
		seen.until = seen.until.Add(waits)
		_ = seen.SetWriteDeadline(seen.until) // only a recorder of a test has none
	}
	who, err := g.bearer(ctx, r)
	ctx, end := g.begin(ctx, w, who, err)
	defer end()
	if err != nil {
		g.fail(w, r, err)
		return
	}
	for _, scope := range hc.Operation().Security[0][bearerScheme] {
		if !g.may(w, r, who, token.Scope(scope)) {
			return
		}
	}
	// A body that a page may send without asking first (text/plain, a form) is no JSON, whatever it
	// says: that is what the type is checked for.
	if sent := r.Header.Get("Content-Type"); sent != "" && hc.Operation().RequestBody != nil && r.ContentLength != 0 {
		if media, _, err := mime.ParseMediaType(sent); err != nil || media != "application/json" {
			g.problem(w, r, http.StatusUnsupportedMediaType,
				"the body must be JSON: send it with Content-Type: application/json")
			return
		}
	}
	a := &answer{tenant: who.Tenant, calls: g.calls, patience: g.cfg.Timeout}
	defer func() {
		if a.room != nil {
			a.room.release()
		}
	}()
	ctx = context.WithValue(context.WithValue(ctx, principalKey{}, who), answerKey{}, a)
	next(&apiContext{humaContext: huma.WithContext(hc, ctx)})
}

// may tells whether who has the scope, or answers that it is missing.
func (g gate) may(w http.ResponseWriter, r *http.Request, who token.Principal, scope token.Scope) bool {
	if who.May(scope) {
		return true
	}
	if seen, ok := w.(*watched); ok {
		seen.refused = "lacks the scope " + string(scope)
	}
	g.write(w, r, lacks(string(scope)))
	return false
}

// note keeps for the log who makes a request, or who was refused and why. The answer does not say
// it: a revoked token is to look like one that never was.
func note(w http.ResponseWriter, who token.Principal, err error) {
	seen, ok := w.(*watched)
	if !ok {
		return
	}
	seen.token = who.Token
	if refusal, ok := errors.AsType[*token.Refusal](err); ok {
		seen.token, seen.refused = refusal.Token, refusal.Why
	} else if errors.Is(err, token.ErrUnauthorized) {
		seen.refused = "sent no token"
	}
}

type humaContext huma.Context

// apiContext lets the status of an error that huma has found be another than huma's: see refine.
type apiContext struct {
	humaContext
	status int // 0: huma's
}

// Unwrap fulfils what humago looks for.
func (c *apiContext) Unwrap() huma.Context { return c.humaContext }

// SetStatus fulfils huma.Context.
func (c *apiContext) SetStatus(code int) {
	if c.status != 0 {
		code = c.status
	}
	c.humaContext.SetStatus(code)
}
